"""An extension of griffe, which reads the docstrings for the reference: doctests become code blocks."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)


class Doctests(Extension):
    """Fences each doctest, so that Markdown does not read its brackets as links."""

    def on_object(self, *, obj: Object, **arguments: Any) -> None:  # noqa: ARG002
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
