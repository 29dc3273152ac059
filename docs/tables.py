"""The computed tables of the documentation: `python docs/tables.py` writes them into their pages, and a test compares.

In a page, a table stands between `<!-- table NAME: python docs/tables.py -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgrpo_hub.games import make_game
from msgrpo_hub.training.paper import MACHINE, ORIGINS, PRESETS, SETTINGS, Origin, Setting, of_game, preset_settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/guide/paper.md")

_TABLE = re.compile(r"(<!-- table ([\w-]+): python docs/tables.py -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    """Writes every table anew."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(with_tables(text), encoding="utf-8")


def with_tables(text: str) -> str:
    """A page with its tables as they are now."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n\n{match[3]}", text)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def origins() -> str:
    """Who decided the values of the paper's presets, in one line each."""
    return markdown(["the presets `paper-*`", "values"], [[origin, _values(origin)] for origin in ORIGINS])


def _values(origin: Origin) -> str:
    """Name and value of every setting of an origin; of what fits a run to a machine, the names."""
    named = {f"`{name}`": one for name, one in SETTINGS.items() if one.value != ""}
    for game in PRESETS.values():
        named |= {(f"{name} of `{game}`" if one.value else name): one for name, one in of_game(make_game(game)).items()}
    values = [f"{name} {one.value}".strip() for name, one in named.items() if one.origin == origin]
    return ", ".join([*values, *(f"`{name}`" for name, one in MACHINE.items() if one.origin == origin)])


def presets() -> str:
    """Every value of the paper's presets with its origin and a note."""
    shared = {**SETTINGS, **MACHINE}
    rows = [_row(f"`{name}`", one) for name, one in shared.items()]
    for preset in PRESETS:
        game = make_game(PRESETS[preset])
        rows.append(_row(f"`game` of `{preset}`", preset_settings(preset)["game"]))
        rows += [_row(f"{name} of `{game.id}`", one) for name, one in of_game(game).items()]
    by_origin = [row for origin in ORIGINS for row in rows if row[2] == origin]
    return markdown(["setting", "value", "origin", "note"], by_origin)


def _row(name: str, setting: Setting) -> list[str]:
    return [name, _shown(setting.value), setting.origin, setting.note]


def _shown(value: object) -> str:
    return "–" if value in ("", {}) else str(value)


TABLES: dict[str, Callable[[], str]] = {"origins": origins, "presets": presets}
"""Name of a table → its Markdown."""

if __name__ == "__main__":
    main()
