"""Variants: the same game with mirrored or rotated cells, other names or symbols, a partial view, or one more sentence.

The rules of the game do not change.

`make_game("Snake-Standard-v1:reflected")` plays the same episodes as `Snake-Standard-v1`: the same seeds, randomness and
rewards. A player that reads the rules scores the same; a player that follows a habit does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games.board import MOVES, Cell, cells_text
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game, Transition, View, check_action, return_range
from msgrpo_hub.games.scene import HasScene, Scene
from msgrpo_hub.games.snake import Snake

_CELL = re.compile(r"\((\d+), (\d+)\)")


Shape = tuple[int, int]
"""The rows and columns of a board."""


def _same(cell: Cell, shape: Shape) -> Cell:  # noqa: ARG001
    return cell


def _mirrored(cell: Cell, shape: Shape) -> Cell:
    return cell[0], shape[1] - 1 - cell[1]


def _turned(cell: Cell, shape: Shape) -> Cell:
    """A quarter turn counterclockwise: rows become columns."""
    return shape[1] - 1 - cell[1], cell[0]


@dataclass(frozen=True)
class Variant:
    """A game with other cells, action names and grid symbols on display; its states are those of `game`."""

    game: HasScene
    id: str
    place: Callable[[Cell, Shape], Cell] = _same
    """(cell of `game`, rows and columns of its board) → displayed cell."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Action of the game → displayed name; actions not listed keep their names."""
    glyphs: Mapping[str, str] = field(default_factory=dict)
    """Grid symbol → displayed symbol."""
    moves: str = MOVES
    """The rule that describes the actions."""
    sentence: str = ""
    """A sentence that stands among the rules and changes nothing."""

    @property
    def rows(self) -> int:
        return self._shape[0]

    @property
    def columns(self) -> int:
        return self._shape[1]

    @cached_property
    def _shape(self) -> Shape:
        """Rows and columns of the displayed board, from its corners: a quarter turn swaps them."""
        corners = [self.placed((0, 0)), self.placed((self.game.rows - 1, self.game.columns - 1))]
        return max(row for row, _ in corners) + 1, max(column for _, column in corners) + 1

    @property
    def horizon(self) -> int:
        return self.game.horizon

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.game.reward_range

    @property
    def return_range(self) -> tuple[float, float]:
        return return_range(self.game)

    @property
    def instructions(self) -> str:
        return self.game.instructions

    @cached_property
    def actions(self) -> tuple[str, ...]:
        displayed = {self.display_name(action) for action in self.game.actions}
        ordered = tuple(action for action in self.game.actions if action in displayed)
        return ordered if len(ordered) == len(displayed) else tuple(self.display_name(action) for action in self.game.actions)

    @cached_property
    def symbols(self) -> dict[str, str]:
        return {self.glyphs.get(symbol, symbol): name for symbol, name in self.game.symbols.items()}

    @cached_property
    def rules(self) -> tuple[str, ...]:
        legend = "In the grid " + ", ".join(f"{symbol} is {name}" for symbol, name in self.symbols.items()) + "."
        rules = tuple(self.moves if rule == MOVES else rule for rule in self.game.rules)
        sentence = (self.sentence,) if self.sentence else ()
        return (*rules[:-1], *sentence, legend if self.glyphs else rules[-1])

    @cached_property
    def pictures(self) -> dict[str, str]:
        return {self.glyphs.get(symbol, symbol): name for symbol, name in self.game.pictures.items()}

    @cached_property
    def directions(self) -> dict[str, Cell]:
        row, column = self.placed((0, 0))
        ends = {self.display_name(action): self.placed(way) for action, way in self.game.directions.items()}
        return {name: (end[0] - row, end[1] - column) for name, end in ends.items()}

    def placed(self, cell: Cell) -> Cell:
        """The displayed cell of a cell of the game."""
        return self.place(cell, (self.game.rows, self.game.columns))

    def display_name(self, action: str) -> str:
        """The displayed name of an action of the game."""
        return self.names.get(action, action)

    def canonical_action(self, action: str) -> str:
        """The action of the game for a displayed name."""
        return next((canonical for canonical, name in self.names.items() if name == action), action)

    def initial_state(self, rng: np.random.Generator) -> Any:
        return self.game.initial_state(rng)

    def step(self, state: Any, action: str | None, rng: np.random.Generator) -> Transition[Any]:
        check_action(self, action)
        return self.game.step(state, None if action is None else self.canonical_action(action), rng)

    def observe(self, state: Any) -> str:
        coordinates, grid, _ = self.game.observe(state).partition("Grid:\n")
        lines = [self._line(line) for line in coordinates.splitlines()]
        return "\n".join([*lines, *(["Grid:", *(" ".join(row) for row in self.grid(state))] if grid else [])])

    def _line(self, line: str) -> str:
        """One line of coordinates; cells are in reading order, except those of a body, which keep their order."""
        label, _, _ = line.partition(":")
        cells = [self.placed((int(r), int(c))) for r, c in _CELL.findall(line)]
        return f"{label}: {cells_text(cells if 'body' in label else sorted(cells))}" if cells else line

    def grid(self, state: Any) -> list[str]:
        displayed = [["."] * self.columns for _ in range(self.rows)]
        for r, row in enumerate(self.game.grid(state)):
            for c, symbol in enumerate(row):
                i, j = self.placed((r, c))
                displayed[i][j] = self.glyphs.get(symbol, symbol)
        return ["".join(row) for row in displayed]

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
        displayed = {self.display_name(action) for action in actions}
        return tuple(action for action in self.actions if action in displayed)

    def succeeded(self, state: Any) -> bool:
        return self.game.succeeded(state)


def base_game(game: Game) -> Game:
    """The game that a variant displays; any other game is returned unchanged."""
    return game.game if isinstance(game, Variant) else game


def unchanged(game: Game) -> Game:
    """The game that an agent with a habit takes a game for: whatever it eats and the goal are worth 1, on any turn.

    >>> from msgrpo_hub.games import make_game
    >>> [item.reward for item in unchanged(make_game("Snake-PoisonAppleBanana-v1")).items]
    [1.0, 1.0]
    """
    if isinstance(game, Snake):
        return replace(game, items=tuple(replace(item, reward=1.0) for item in game.items))
    return replace(game, exactly=False, goal_reward=1.0) if isinstance(game, FrozenLake) else game


def display_name(game: Game, action: str) -> str:
    """The displayed name of an action of `base_game(game)`."""
    return game.display_name(action) if isinstance(game, Variant) else action


def display_symbol(game: Game, symbol: str) -> str:
    """The displayed symbol for a symbol of `base_game(game)`."""
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
    "irrelevant-sentence": lambda game, id: Variant(game, id, sentence="The weather is nice today."),
    **{view: partial(_seen, view=view) for view in get_args(View) if view != "full"},
}
"""Name → (game, id of the variant) → the variant."""


def make_variant(game: Game, name: str) -> Game:
    """The variant of a game. Raises `UserError` for an unknown name, and if the variant would make the game's rules false.

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
