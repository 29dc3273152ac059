"""Renders the README of a repository from its template in `model_cards/`.

Undefined names are errors. Text of others is always a value, never part of a template. It passes the filter `text` in prose
and tables, and `code` between backticks, so it cannot become a heading, a link or HTML.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import CardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from msgrpo_hub import __version__
from msgrpo_hub.errors import plain


def render(template: str, metadata: CardData, **values: Any) -> str:
    """Renders a card: its metadata as front matter, and the template with these values."""
    shipped = Path(str(files("msgrpo_hub") / "hub" / "model_cards"))  # in a wheel; a clone has them at its top level
    folder = shipped if shipped.is_dir() else Path(__file__).parents[2] / "model_cards"
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": as_text, "code": as_code, "linked": linked}
    text = environment.get_template(template).render(values, front_matter=f"{metadata.to_yaml()}\n", version=__version__)
    return re.sub(r"\n{3,}", "\n\n", text)


def as_text(value: object) -> str:
    """Escapes a value to one line of Markdown without markup.

    >>> print(as_text("[free](https://evil)\\n# Licence <script>"))
    \\[free\\](https://evil) \\# Licence \\<script\\>
    """
    return re.sub(r"([\\`*\[\]<>#|~$!&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", plain(str(value)))


def as_code(value: object) -> str:
    """A value as a code span, also in a table."""
    return f"`{plain(str(value)).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def linked(source: str, revision: str | None) -> str:
    """A model with its commit; a link if the model is a repository."""
    if not revision:
        return as_text(source)
    is_repository = re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII) and re.fullmatch(r"\w+", revision, re.ASCII)
    name = f"[{source}](https://huggingface.co/{source}/tree/{revision})" if is_repository else as_code(source)
    return f"{name} at {as_text(revision[:12])}"
