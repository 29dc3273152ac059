"""Variants: the same game with mirrored or rotated cells, other names or symbols, a partial view, or one more sentence.

`make_game("Snake-Standard-v1:reflected")` plays the same episodes as `Snake-Standard-v1`: the same seeds, randomness and
rewards. A player that reads the rules scores the same; a player that follows a habit does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games.board import MOVES, Cell, cells_text, grid_rows
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game, HasScene, Scene, Transition, check_turn, return_range
from msgrpo_hub.games.snake import Snake

_CELL = re.compile(r"\((\d+), (\d+)\)")
_NOTHING: Mapping[str, str] = MappingProxyType({})

Place = Callable[[Cell, int, int], Cell]
"""(cell of a game, rows and columns of its board) → displayed cell."""


class Variant(HasScene):
    """A game with other cells, action names, grid symbols or words on display; `game` has the states."""

    def __init__(
        self,
        game: HasScene,
        id: str,
        place: Place = lambda cell, *_: cell,
        names: Mapping[str, str] = _NOTHING,
        glyphs: Mapping[str, str] = _NOTHING,
        moves: str = MOVES,
        sentence: str = "",
        *,
        instructions: str | None = None,
        rules: tuple[str, ...] | None = None,
    ) -> None:
        """Sets up what is displayed: `place` says where a cell is; `names` (of actions) and `glyphs` (of grid symbols) map to
        what is displayed, and others stay; `moves` is the rule that describes the actions; `sentence` joins the rules and changes
        nothing. Other `rules` are in place of the game's, `moves` and `sentence`.
        """
        self.game, self.id, self.names, self.glyphs, self.sentence = game, id, names, glyphs, sentence
        self.horizon, self.reward_range, self.return_range = game.horizon, game.reward_range, return_range(game)
        self.initial_state, self.succeeded = game.initial_state, game.succeeded
        self.legal_actions = lambda state: self._displayed(game.legal_actions(state))
        self.safe_actions = lambda state: self._displayed(game.safe_actions(state))
        self.placed: Callable[[Cell], Cell] = lambda cell: place(cell, game.rows, game.columns)
        (row, column), (last_row, last_column) = self.placed((0, 0)), self.placed((game.rows - 1, game.columns - 1))
        self.rows, self.columns = max(row, last_row) + 1, max(column, last_column) + 1

        renamed = [names.get(action, action) for action in game.actions]
        self.actions = game.actions if {*renamed} == {*game.actions} else tuple(renamed)
        ends = {names.get(action, action): self.placed(way) for action, way in game.directions.items()}
        self.directions = {name: (end[0] - row, end[1] - column) for name, end in ends.items()}

        self.symbols = {glyphs.get(symbol, symbol): meaning for symbol, meaning in game.symbols.items()}
        self.pictures = {glyphs.get(symbol, symbol): picture for symbol, picture in game.pictures.items()}
        legend = "In the grid " + ", ".join(f"{symbol} is {meaning}" for symbol, meaning in self.symbols.items()) + "."
        told = [moves if rule == MOVES else rule for rule in game.rules]
        told = [*told[:-1], *([sentence] if sentence else []), legend if glyphs else told[-1]]
        self.instructions = game.instructions if instructions is None else instructions
        self.rules = tuple(told) if rules is None else rules

    def step(self, state: Any, action: str | None, rng: np.random.Generator) -> Transition[Any]:
        check_turn(self, action, ended=False)
        own = next((own for own, name in self.names.items() if name == action), action)
        return self.game.step(state, own, rng)

    def observe(self, state: Any) -> str:
        coordinates, grid, _ = self.game.observe(state).partition("Grid:\n")
        lines = []
        for line in coordinates.splitlines():
            label, _, _ = line.partition(":")
            cells = [self.placed((int(r), int(c))) for r, c in _CELL.findall(line)]
            cells = cells if "body" in label else sorted(cells)  # a body keeps its order, other cells are in reading order
            lines.append(f"{label}: {cells_text(cells)}" if cells else line)
        return "\n".join([*lines, *(["Grid:", *(" ".join(row) for row in self.grid(state))] if grid else [])])

    def grid(self, state: Any) -> list[str]:
        cells = [((r, c), symbol) for r, row in enumerate(self.game.grid(state)) for c, symbol in enumerate(row)]
        displayed = {self.placed(cell): self.glyphs.get(symbol, symbol) for cell, symbol in cells}
        return grid_rows(self.rows, self.columns, displayed)

    def scene(self, state: Any) -> Scene:
        scene = self.game.scene(state)
        return Scene(
            player=self.placed(scene.player),
            under=self.glyphs.get(scene.under, scene.under),
            posture=scene.posture,
            bodies=tuple(replace(body, cells=tuple(map(self.placed, body.cells))) for body in scene.bodies),
            wanted=frozenset(map(self.placed, scene.wanted)),
            blocked=frozenset(map(self.placed, scene.blocked)),
            contested=frozenset(map(self.placed, scene.contested)),
        )

    def _displayed(self, actions: Iterable[str]) -> tuple[str, ...]:
        """The displayed names of actions of the game, in the order of the variant."""
        names = {display_name(self, action) for action in actions}
        return tuple(name for name in self.actions if name in names)


def base_game(game: Game) -> Game:
    """The game that a variant displays; any other game is returned unchanged."""
    return game.game if isinstance(game, Variant) else game


def display_name(game: Game, name: str) -> str:
    """The displayed name of an action, or the displayed form of a grid symbol, of `base_game(game)`."""
    return game.names.get(name, game.glyphs.get(name, name)) if isinstance(game, Variant) else name


_MIRRORED = {"Left": "Right", "Right": "Left"}
_COMPASS = {"Left": "West", "Down": "South", "Right": "East", "Up": "North"}
_COMPASS_RULE = "North changes the row by -1, South by 1; West changes the column by -1, East by 1."
_TURNED = {"Left": "Down", "Down": "Right", "Right": "Up", "Up": "Left"}
_TURNED_RULE = (
    "Here Down moves to the column on the left, Right to the row below, Up to the column on the right, Left to the row above."
)
_GLYPHS = {".": "_", "@": "P", "O": "H", "G": "E", "#": "p", "X": "Q", "x": "q", "A": "*", "B": "+", "F": "%"}

_DOWN_MOVED = ("rotated", "compass", "permuted-actions")
"""Variants in which the word Down does not mean the next row."""

VARIANTS: dict[str, Callable[[FrozenLake | Snake, str], Game]] = {
    "reflected": lambda game, id: Variant(game, id, lambda cell, _, columns: (cell[0], columns - 1 - cell[1]), _MIRRORED),
    "rotated": lambda game, id: Variant(game, id, lambda cell, _, columns: (columns - 1 - cell[1], cell[0]), _TURNED),
    "compass": lambda game, id: Variant(game, id, names=_COMPASS, moves=_COMPASS_RULE),
    "permuted-actions": lambda game, id: Variant(game, id, names=_TURNED, moves=_TURNED_RULE),
    "other-symbols": lambda game, id: Variant(game, id, glyphs=_GLYPHS),
    "irrelevant-sentence": lambda game, id: Variant(game, id, sentence="The weather is nice today."),
    "coordinates": lambda game, id: replace(game, id=id, view="coordinates"),
    "grid": lambda game, id: replace(game, id=id, view="grid"),
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
    if isinstance(game, Snake) and game.down_hill and name in _DOWN_MOVED:
        raise UserError(f"{game.id} cannot be {name}, since its rules name a direction: expected another variant")
    return _variant(game, name)


@cache
def _variant(game: FrozenLake | Snake, name: str) -> Game:
    return VARIANTS[name](game, f"{game.id}:{name}")
