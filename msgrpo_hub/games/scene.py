"""Scenes: what a state shows beyond its grid. Boards are drawn from it, and the player `greedy` finds its way by it.

A grid does not tell the order of a snake's cells, nor what the player stands on. A game that offers scenes says so itself,
and nobody outside has to know its states. A game without scenes is drawn from its grid and its symbols alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.game import Game

Posture = Literal["", "goal", "hole"]
"""How a lone player stands: upright, beside the flag of the goal, or sunk into a hole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """One who moves and covers several cells."""

    cells: tuple[Cell, ...]
    """From head to tail."""
    alive: bool = True
    """Whether it is still alive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One state, for drawing and for finding a way. Cells are those of the board as the game shows it."""

    player: Cell
    """Where the player is, or its head."""
    under: str = "."
    """The symbol of what a lone player stands on, which the grid hides."""
    posture: Posture = ""
    """How a lone player stands."""
    bodies: tuple[Body, ...] = ()
    """The bodies on the board, the player's first; empty for a lone player."""
    wanted: frozenset[Cell] = frozenset()
    """The cells worth going to."""
    blocked: frozenset[Cell] = frozenset()
    """The cells never to enter."""
    contested: frozenset[Cell] = frozenset()
    """The cells that an opponent may enter this turn."""


class HasScene(Game, Protocol):
    """A game that describes its states as scenes."""

    @property
    def directions(self) -> Mapping[str, Cell]:
        """Action → where it leads on the board, as (rows, columns)."""

    @property
    def pictures(self) -> Mapping[str, str]:
        """Grid symbol → the name of its drawing (see `rendering.board_art`)."""

    def scene(self, state: Any) -> Scene:
        """What the state shows."""


def has_scene(game: Game) -> TypeGuard[HasScene]:
    """Whether a game describes its states as scenes."""
    return callable(getattr(game, "scene", None))
