"""Scenes: a description of a state beyond its grid, for drawing boards and for the player `greedy`.

A grid has neither the order of a snake's cells nor what the player stands on. A game with scenes describes both, so that no
other code depends on its states. A game without scenes is drawn from its grid and symbols alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.game import Game

Posture = Literal["", "goal", "hole"]
"""The posture of a player without a body: upright, beside the flag of the goal, or in a hole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A moving body that covers several cells."""

    cells: tuple[Cell, ...]
    """From head to tail."""
    alive: bool = True
    """Whether it is alive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One state, for drawing and path finding. Cells are those of the displayed board."""

    player: Cell
    """The cell of the player, or of its head."""
    under: str = "."
    """The symbol under a player without a body, which the grid hides."""
    posture: Posture = ""
    """The posture of a player without a body."""
    bodies: tuple[Body, ...] = ()
    """The bodies on the board, the player's first; empty for a player without one."""
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
        """Action → its move on the board, as (rows, columns)."""

    @property
    def pictures(self) -> Mapping[str, str]:
        """Grid symbol → the name of its drawing (see `rendering.board_art`)."""

    def scene(self, state: Any) -> Scene:
        """The scene of a state."""


def has_scene(game: Game) -> TypeGuard[HasScene]:
    """Whether a game describes its states as scenes."""
    return callable(getattr(game, "scene", None))
