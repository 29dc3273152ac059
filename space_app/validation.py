"""Checks of what a visitor asks for. Anything unexpected is refused in one line."""

from __future__ import annotations

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, Game, make_game

LAST_EPISODE = 9_999
"""The number of the last test episode a visitor can ask for."""


def game(name: str) -> Game:
    """Returns the game with this id. Raises `UserError` for an unknown one."""
    if not isinstance(name, str) or len(name) > 80:
        raise UserError(f"a game's id of {len(str(name))} characters: expected one such as 'FrozenLake-NotSlippery-v1'")
    return make_game(name)


def game_ids() -> list[str]:
    """The games that the lists offer: the registered ones, and all variants of two of them."""
    shown = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")
    return [*GAMES, *(f"{name}:{variant}" for name in shown for variant in VARIANTS)]


def number(value: float, low: int = 0, high: int = LAST_EPISODE, what: str = "seed") -> int:
    """Returns a whole number in a range. Raises `UserError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not low <= value <= high:
        raise UserError(f"{what} {str(value)[:30]!r}: expected a whole number from {low} to {high}")
    return int(value)


def text(value: str, longest: int, what: str) -> str:
    """Returns a text without its control characters. Raises `UserError` if it is too long."""
    if not isinstance(value, str) or len(value) > longest:
        raise UserError(f"{what} of {len(str(value)):,} characters: expected at most {longest:,}")
    return "".join(c for c in value.replace("\r\n", "\n") if c == "\n" or c.isprintable())
