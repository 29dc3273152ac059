"""Cards: the rendering of a README for the Hub from its template.

Cards are rendered strictly (an unknown name in a template is an error) and from typed records alone. User text is always
a value in a template, never part of its source. Text of others passes the filter `text` in prose and tables, and `code` where it
stands between backticks, so that it cannot become a heading, a link or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from msgrpo_hub.errors import plain
from msgrpo_hub.hub.card_rules import check_card


def render(template: str, values: Mapping[str, Any]) -> str:
    """Renders a template of `model_cards/`; an undefined name is an error."""
    environment = Environment(
        loader=FileSystemLoader(_folder()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": as_text, "code": as_code}
    environment.globals |= {"address": package_address()}
    return re.sub(r"\n{3,}", "\n\n", environment.get_template(template).render(values))


def as_text(value: object) -> str:
    """A value as one line of Markdown that shows its characters and does nothing else.

    >>> print(as_text("[free](https://evil)\\n# Licence <script>"))
    \\[free\\](https://evil) \\# Licence \\<script\\>
    """
    return re.sub(r"([\\`*\[\]<>#|~$!&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", plain(str(value)))


def as_code(value: object) -> str:
    """A value as a code span, also in a table.

    >>> print(as_code("a`b|c"))
    `a'b\\|c`
    """
    return f"`{plain(str(value)).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


@cache
def package_address() -> str:
    """Where the package is developed, as its metadata says; empty if they do not say."""
    try:
        urls = metadata("msgrpo-hub").get_all("Project-URL") or []
    except PackageNotFoundError:  # a clone on the path
        return ""
    return next((url.partition(", ")[2] for url in urls), "")


def front_matter(about: Mapping[str, Any]) -> str:
    """Metadata as the YAML at the top of a card."""
    return str(yaml.safe_dump(dict(about), sort_keys=False, allow_unicode=True, width=1000))


def checked(content: str) -> str:
    """The content of a card. Raises `UserError` if the Hub would refuse it."""
    check_card(content)
    return content


def _folder() -> Path:
    """The folder of the templates: beside this file in a wheel, at the top level in a clone."""
    shipped = Path(str(files("msgrpo_hub") / "hub" / "model_cards"))
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "model_cards"
