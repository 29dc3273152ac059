"""Cards: the rendering of a README for the Hub from its template.

Cards are rendered strictly (an unknown name in a template is an error) and from typed records alone. User text is always
a value in a template, never part of its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jinja2 import Environment, FileSystemLoader, StrictUndefined

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
    return re.sub(r"\n{3,}", "\n\n", environment.get_template(template).render(values))


def front_matter(metadata: Mapping[str, Any]) -> str:
    """Metadata as the YAML at the top of a card."""
    return str(yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True, width=1000))


def checked(content: str) -> str:
    """The content of a card. Raises `UserError` if the Hub would refuse it."""
    check_card(content)
    return content


def _folder() -> Path:
    """The folder of the templates: beside this file in a wheel, at the top level in a clone."""
    shipped = Path(str(files("msgrpo_hub") / "hub" / "model_cards"))
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "model_cards"
