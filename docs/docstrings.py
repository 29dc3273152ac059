"""An extension of griffe, which reads the docstrings for the reference: doctests and lists become Markdown."""

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)
LIST = re.compile(r"(?<=[^\s])\n( *- .*(?:\n(?!\n).*)*)")


class Docstrings(Extension):
    """Fences each doctest, so that its brackets are no links, and begins each list that follows a line of text as one."""

    def on_object(self, *, obj: Object, **arguments: Any) -> None:  # noqa: ARG002
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The text of a docstring, without the sections that griffe reads, as Markdown.

    >>> print(as_markdown("Files:\\n    - a\\n      b\\n    - c"))
    Files:
    <BLANKLINE>
    - a
        b
    - c
    """
    text = LIST.sub(lambda match: "\n\n" + re.sub(r"^  (?=\S)", "    ", dedent(match[1]), flags=re.MULTILINE), text)
    return DOCTEST.sub(r"```pycon\n\g<0>\n```", text)
