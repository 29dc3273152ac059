"""The player `planner`: plans ahead in Snake. Its score is the upper reference for models.

Snake has too many states to be solved. The planner solves a simplified Snake on every turn, by dynamic programming over the
turns left (Bellman, Dynamic Programming, 1957): eaten items do not reappear, the player's body is the current one, and the
opponent is a probability per cell and turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import DIRECTIONS, Cell, inside, neighbour
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.snake import Item, Snake, SnakeState, is_snake
from msgrpo_hub.games.solving import TIE

Floats = npt.NDArray[np.float64]

HASTE = 0.1
"""Bonus per turn left after an item is eaten, as a share of its reward: the item reappears and may be eaten again.

Chosen on validation episodes, where all values from 0.05 to 0.2 score the same."""

PLANNED = 6
"""The planner considers the 6 nearest wanted items (2^6 sets). No registered game has more."""


def choose_planner(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The player `planner`: the first move of a best plan; the first among equals.

    Raises `UserError` for a game other than Snake.
    """
    if not is_snake(game):
        other = "optimal" if is_solvable(game) else "random-safe"
        raise UserError(f"the planner plays only Snake, not {game.id}: use the player {other!r} instead of 'planner'")
    values = move_values(game, state)
    return game.actions[int(np.argmax(values >= values.max() - TIE))]


def move_values(game: Snake, state: SnakeState) -> Floats:
    """The value of each action followed by best play in the simplified Snake; shape (4,), in the order of the actions.

    Shapes: D = 4 directions of the last move; W = 2^k sets of wanted items left, for the k nearest items with a positive
    reward; S × S cells. V_t[d, w, c] is the value of standing on c with turns t + 1, t + 2, … to come, and

    Q_t[d, w, c] = p_t(c) · death + (1 − p_t(c)) · (r(c, w) + (1 − h_t(c)) · V_t[d, w without the items on c, c])

    is the value of entering c by d on turn t. p_t is the probability that the opponent's head enters c too. h_t is the
    probability that it later runs into the player there, which ends the game. V_{t−1} = max Q_t over neighbours, never
    straight back.
    """
    board = _Board(game, state)
    value = np.zeros((len(DIRECTIONS), 2 ** len(board.wanted), game.size, game.size))
    entering = value
    for turn in range(game.horizon - state.turn, 0, -1):
        entering = board.entering(turn, value)
        value = _best_ahead(_ahead(entering, game.death_reward))
    row, column = state.snake[0]
    values = _ahead(entering, game.death_reward)[:, -1, row, column]
    trapped = [not _can_go_on(game, state, neighbour(state.snake[0], action)) for action in game.actions]
    return values + game.death_reward * np.array(trapped)


def _can_go_on(game: Snake, state: SnakeState, cell: Cell) -> bool:
    """Whether the snake, once on a cell, can still make as many moves as it has cells, or survive to the end of the game.

    The plan uses the current body only, and might lead into a dead end that the body closes.
    """
    food = {cell for item, cells in zip(game.items, state.items, strict=True) if item.grows for cell in cells}
    body = _moved(state.snake, cell, food)
    return _can_move(game, body, {*state.opponent}, food - {cell}, min(len(body), game.horizon - state.turn - 1))


def _can_move(game: Snake, body: tuple[Cell, ...], others: Collection[Cell], food: Collection[Cell], moves: int) -> bool:
    """Whether a snake can make this many moves without hitting a wall, itself, or `others`, which do not move."""
    if not moves:
        return True
    ahead = [cell for action in game.actions if inside(cell := neighbour(body[0], action), game.rows, game.columns)]
    free = [cell for cell in ahead if cell not in body and cell not in others]
    return any(_can_move(game, _moved(body, cell, food), others, food, moves - 1) for cell in free)


def _moved(body: tuple[Cell, ...], head: Cell, food: Collection[Cell]) -> tuple[Cell, ...]:
    return (head, *(body if head in food else body[:-1]))


def _ahead(entering: Floats, outside: float) -> Floats:
    """The value of the neighbour in each direction d, at the cell of departure: (D, W, S, S); a wall kills."""
    size = entering.shape[-1]
    padded = np.full((*entering.shape[:2], size + 2, size + 2), outside)
    padded[..., 1:-1, 1:-1] = entering
    steps = enumerate(DIRECTIONS.values())
    return np.stack([padded[d, :, 1 + r : 1 + r + size, 1 + c : 1 + c + size] for d, (r, c) in steps])


def _best_ahead(ahead: Floats) -> Floats:
    """The best of the three directions that do not reverse, for each last move: (D, W, S, S)."""
    left, down, right, up = ahead
    left_down, right_up = np.maximum(left, down), np.maximum(right, up)
    pairs = [(left_down, up), (left_down, right), (right_up, down), (right_up, left)]
    return np.stack([np.maximum(pair, other) for pair, other in pairs])


@dataclass(frozen=True)
class _Board:
    """One state, with predictions for the following turns (turn 1 is the move to choose)."""

    game: Snake
    state: SnakeState

    @cached_property
    def items(self) -> list[tuple[Item, Cell]]:
        return [(item, cell) for item, cells in zip(self.game.items, self.state.items, strict=True) for cell in cells]

    @cached_property
    def wanted(self) -> list[int]:
        """Indices of the nearest items with a positive reward."""
        (row, column), *_ = self.state.snake
        good = [(abs(r - row) + abs(c - column), k) for k, (item, (r, c)) in enumerate(self.items) if item.reward > 0]
        return sorted(k for _, k in sorted(good)[:PLANNED])

    @cached_property
    def bodies(self) -> set[Cell]:
        return {*self.state.snake, *self.state.opponent}

    def entering(self, turn: int, value: Floats) -> Floats:
        """Q_t from V_t, both (D, W, S, S)."""
        entered, visited, hit = self._opponent(turn)
        later = value * (1 - hit)
        entering = later.copy()
        bonus = 1 + HASTE * (self.game.horizon - self.state.turn - turn)
        for k, (item, cell) in enumerate(self.items):
            for way, (row, column) in self._where(cell, turn):
                if k in self.wanted:
                    present, eaten = self._with_and_without(k, entering)[0], self._with_and_without(k, later)[1]
                    gain = item.reward * bonus * (1 - visited[row, column])
                    present[way, ..., row, column] = gain + eaten[way, ..., row, column]
                elif item.reward < 0:
                    entering[way, ..., row, column] += item.reward
        entering *= 1 - entered
        entering += entered * self.game.death_reward
        for snake in (self.state.snake, self.state.opponent):
            for row, column in snake[: max(len(snake) - turn + 1, 0)]:  # the rest has moved on by then
                entering[..., row, column] = self.game.death_reward
        return entering

    def _with_and_without(self, k: int, values: Floats) -> tuple[Floats, Floats]:
        """Views of the sets with item k, and of the same sets without it; each (D, W', W'', S, S)."""
        split = values.reshape(len(DIRECTIONS), -1, 2, 2 ** self.wanted.index(k), *values.shape[2:])
        return split[:, :, 1], split[:, :, 0]

    def _where(self, cell: Cell, turn: int) -> Iterator[tuple[Any, Cell]]:
        """Where an item will lie, as (last moves, cell); a head right below stops a rolling item."""
        if not self.game.down_hill:
            yield slice(None), cell
            return
        now, before = self._rolled(cell, turn), self._rolled(cell, turn - 1)
        yield slice(None), now
        if before != now:
            yield list(DIRECTIONS).index("Up"), before

    def _rolled(self, cell: Cell, turns: int) -> Cell:
        """The cell of an item after some turns of rolling, down to the last row or onto the items there."""
        below = sum(row > cell[0] and column == cell[1] for _, (row, column) in self.items)
        held = turns > 0 and neighbour(cell, "Down") in self.bodies
        return min(cell[0] + turns - held, self.game.size - 1 - below), cell[1]

    def _opponent(self, turn: int) -> tuple[Floats, Floats, Floats]:
        """Per cell, the probability that the opponent's head enters it on a turn, before, or while the player is there."""
        length, sums = len(self.state.snake), self._entered
        so_far = sums[turn]
        return so_far - sums[turn - 1], np.minimum(sums[turn - 1], 1), np.minimum(sums[turn + length] - so_far, 1)

    @cached_property
    def _entered(self) -> Floats:
        """The expected number of times the opponent's head has entered each cell after t turns: (T, S, S), zero for t = 0."""
        size, opponent = self.game.size, self.state.opponent
        chance = np.zeros((self.game.horizon - self.state.turn + len(self.state.snake) + 1, size, size))
        ahead = [neighbour(opponent[0], action) for action in self.game.actions] if opponent else []
        open_cells = [cell for cell in ahead if inside(cell, size, size) and cell not in opponent]
        for row, column in open_cells:
            chance[1, row, column] = 1 / len(open_cells)
        exits = _neighbour_sum(np.ones((size, size)))
        for turn in range(2, len(chance)):
            chance[turn] = _neighbour_sum(chance[turn - 1] / exits)
        sums: Floats = chance.cumsum(0)
        return sums


def _neighbour_sum(cells: Floats) -> Floats:
    """The sum over the neighbours of each cell: (S, S)."""
    padded, (rows, columns) = np.pad(cells, 1), cells.shape
    total: Floats = sum((padded[1 + r : 1 + r + rows, 1 + c : 1 + c + columns] for r, c in DIRECTIONS.values()), np.zeros(()))
    return total
