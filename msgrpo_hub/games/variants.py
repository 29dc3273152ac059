"""Variants: the same game seen in a mirror, told in other words, or shown in part. Nothing about its play changes.

`make_game("Snake-Standard-v1:reflected")` plays the very episodes of `Snake-Standard-v1`: same seeds, same chance, same
rewards. A player that understands what it reads scores the same; one that has learned a habit does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games.board import Cell, cells_text
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game, Transition, View, check_action
from msgrpo_hub.games.scene import HasScene, Scene
from msgrpo_hub.games.snake import Snake

_CELL = re.compile(r"\((\d+), (\d+)\)")
_MOVES = "Up and Down change the row by one, Left and Right change the column by one."


Shape = tuple[int, int]
"""The rows and columns of a board."""


def _same(cell: Cell, shape: Shape) -> Cell:  # noqa: ARG001
    return cell


def _mirrored(cell: Cell, shape: Shape) -> Cell:
    return cell[0], shape[1] - 1 - cell[1]


def _turned(cell: Cell, shape: Shape) -> Cell:
    """A quarter turn against the clock: rows become columns."""
    return shape[1] - 1 - cell[1], cell[0]


@dataclass(frozen=True)
class Variant:
    """A game whose cells, action names and grid symbols are shown in another way; states are those of `game`."""

    game: HasScene
    id: str
    place: Callable[[Cell, Shape], Cell] = _same
    """Where a cell is shown: (cell, rows and columns of the board of `game`) → cell."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Action of the game → its name here; what is not listed keeps its name."""
    glyphs: Mapping[str, str] = field(default_factory=dict)
    """Grid symbol → symbol shown."""
    moves: str = _MOVES
    """The rule that says what the actions do."""

    @property
    def rows(self) -> int:
        return self._shape[0]

    @property
    def columns(self) -> int:
        return self._shape[1]

    @cached_property
    def _shape(self) -> Shape:
        """A quarter turn swaps rows and columns: the corners tell."""
        corners = [self.placed((0, 0)), self.placed((self.game.rows - 1, self.game.columns - 1))]
        return max(row for row, _ in corners) + 1, max(column for _, column in corners) + 1

    @property
    def horizon(self) -> int:
        return self.game.horizon

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.game.reward_range

    @property
    def instructions(self) -> str:
        return self.game.instructions

    @cached_property
    def actions(self) -> tuple[str, ...]:
        shown = {self.display_name(action) for action in self.game.actions}
        kept = tuple(action for action in self.game.actions if action in shown)
        return kept if len(kept) == len(shown) else tuple(self.display_name(action) for action in self.game.actions)

    @cached_property
    def symbols(self) -> dict[str, str]:
        return {self.glyphs.get(symbol, symbol): name for symbol, name in self.game.symbols.items()}

    @cached_property
    def rules(self) -> tuple[str, ...]:
        legend = "In the grid " + ", ".join(f"{symbol} is {name}" for symbol, name in self.symbols.items()) + "."
        rules = tuple(self.moves if rule == _MOVES else rule for rule in self.game.rules)
        return (*rules[:-1], legend) if self.glyphs else rules

    @cached_property
    def pictures(self) -> dict[str, str]:
        return {self.glyphs.get(symbol, symbol): name for symbol, name in self.game.pictures.items()}

    @cached_property
    def directions(self) -> dict[str, Cell]:
        row, column = self.placed((0, 0))
        ends = {self.display_name(action): self.placed(way) for action, way in self.game.directions.items()}
        return {name: (end[0] - row, end[1] - column) for name, end in ends.items()}

    def placed(self, cell: Cell) -> Cell:
        """Where a cell of the game is shown."""
        return self.place(cell, (self.game.rows, self.game.columns))

    def display_name(self, action: str) -> str:
        """The name here of an action of the game."""
        return self.names.get(action, action)

    def canonical_action(self, action: str) -> str:
        """The action of the game that a name here stands for."""
        return next((own for own, name in self.names.items() if name == action), action)

    def initial_state(self, rng: np.random.Generator) -> Any:
        return self.game.initial_state(rng)

    def step(self, state: Any, action: str | None, rng: np.random.Generator) -> Transition[Any]:
        check_action(self, action)
        return self.game.step(state, None if action is None else self.canonical_action(action), rng)

    def observe(self, state: Any) -> str:
        written, grid, _ = self.game.observe(state).partition("Grid:\n")
        lines = [self._line(line) for line in written.splitlines()]
        return "\n".join([*lines, *(["Grid:", *(" ".join(row) for row in self.grid(state))] if grid else [])])

    def _line(self, line: str) -> str:
        """One line of coordinates; a list of cells stays in reading order, a body in its own."""
        label, _, _ = line.partition(":")
        cells = [self.placed((int(r), int(c))) for r, c in _CELL.findall(line)]
        return f"{label}: {cells_text(cells if 'body' in label else sorted(cells))}" if cells else line

    def grid(self, state: Any) -> list[str]:
        shown = [["."] * self.columns for _ in range(self.rows)]
        for r, row in enumerate(self.game.grid(state)):
            for c, symbol in enumerate(row):
                there, across = self.placed((r, c))
                shown[there][across] = self.glyphs.get(symbol, symbol)
        return ["".join(row) for row in shown]

    def scene(self, state: Any) -> Scene:
        scene = self.game.scene(state)
        return replace(
            scene,
            player=self.placed(scene.player),
            under=self.glyphs.get(scene.under, scene.under),
            bodies=tuple(replace(body, cells=tuple(map(self.placed, body.cells))) for body in scene.bodies),
            wanted=frozenset(map(self.placed, scene.wanted)),
            blocked=frozenset(map(self.placed, scene.blocked)),
            contested=frozenset(map(self.placed, scene.contested)),
        )

    def legal_actions(self, state: Any) -> tuple[str, ...]:
        return self._ordered(self.game.legal_actions(state))

    def safe_actions(self, state: Any) -> tuple[str, ...]:
        return self._ordered(self.game.safe_actions(state))

    def _ordered(self, actions: tuple[str, ...]) -> tuple[str, ...]:
        told = {self.display_name(action) for action in actions}
        return tuple(action for action in self.actions if action in told)

    def succeeded(self, state: Any) -> bool:
        return self.game.succeeded(state)


def base_game(game: Game) -> Game:
    """The game underneath, whose states and actions are meant: of a game that is no variant, itself."""
    return game.game if isinstance(game, Variant) else game


def display_name(game: Game, action: str) -> str:
    """The name that an action of `base_game(game)` has in a game."""
    return game.display_name(action) if isinstance(game, Variant) else action


def display_symbol(game: Game, symbol: str) -> str:
    """The symbol that a game shows for one of `base_game(game)`."""
    return game.glyphs.get(symbol, symbol) if isinstance(game, Variant) else symbol


def _seen(game: FrozenLake | Snake, id: str, view: View) -> Game:
    return replace(game, id=id, view=view)


_COMPASS = {"Left": "West", "Down": "South", "Right": "East", "Up": "North"}
_COMPASS_RULE = "North changes the row by -1, South by 1; West changes the column by -1, East by 1."
_TURNED = {"Left": "Down", "Down": "Right", "Right": "Up", "Up": "Left"}
_TURNED_RULE = (
    "Here Down moves to the column on the left, Right to the row below, Up to the column on the right, Left to the row above."
)
_GLYPHS = {".": "_", "@": "P", "O": "H", "G": "E", "#": "p", "X": "Q", "x": "q", "A": "*", "B": "+", "F": "%"}

_NAMED_DOWN = ("rotated", "compass", "permuted-actions")
"""Variants in which the word Down does not mean the next row."""

VARIANTS: dict[str, Callable[[FrozenLake | Snake, str], Game]] = {
    "reflected": lambda game, id: Variant(game, id, _mirrored, {"Left": "Right", "Right": "Left"}),
    "rotated": lambda game, id: Variant(game, id, _turned, _TURNED),
    "compass": lambda game, id: Variant(game, id, names=_COMPASS, moves=_COMPASS_RULE),
    "permuted-actions": lambda game, id: Variant(game, id, names=_TURNED, moves=_TURNED_RULE),
    "other-symbols": lambda game, id: Variant(game, id, glyphs=_GLYPHS),
    **{view: partial(_seen, view=view) for view in get_args(View) if view != "full"},
}
"""Name → (game, id of the variant) → the variant."""


def make_variant(game: Game, name: str) -> Game:
    """The variant of a game. Raises `UserError` for an unknown name, and where the game's rules would then say something false.

    >>> from msgrpo_hub.games import make_game
    >>> make_game("FrozenLake-NotSlippery-v1:compass").actions
    ('West', 'South', 'East', 'North')
    """
    if name not in VARIANTS:
        raise unknown("variant", name, VARIANTS)
    if not isinstance(game, FrozenLake | Snake):
        raise UserError(f"{game.id} has no variants: expected {game.id!r} alone")
    if isinstance(game, Snake) and game.down_hill and name in _NAMED_DOWN:
        raise UserError(f"{game.id} cannot be {name}, since its rules name a direction: expected another variant")
    return VARIANTS[name](game, f"{game.id}:{name}")
