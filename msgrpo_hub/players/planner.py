"""The player `planner`: plans ahead in Snake. Its score is the upper reference for models.

Snake has too many states to be solved. The planner solves a simplified Snake on every turn, by dynamic programming over the
turns left (Bellman, Dynamic Programming, 1957): eaten items do not reappear, the player's body is the current one, and the
opponent is a probability per cell and turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import DIRECTIONS, Cell, inside, neighbour
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.snake import Snake, SnakeState
from msgrpo_hub.games.solving import TIE

Floats = npt.NDArray[np.float64]

HASTE = 0.1
"""Bonus per turn left after an item is eaten, as a share of its reward: the item reappears and may be eaten again.

Chosen on validation episodes, where all values from 0.05 to 0.2 score the same."""

PLANNED = 6
"""The planner considers the 6 nearest wanted items (2^6 sets). No registered game has more."""


def choose_planner(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The player `planner`: the first move of a best plan. Raises `UserError` for a game other than Snake."""
    if not isinstance(game, Snake):
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
    food = {cell for item, cells in zip(game.items, state.items, strict=True) if item.grows for cell in cells}
    for way, action in enumerate(game.actions):
        cell = neighbour(state.snake[0], action)
        moves = min(len(state.snake) + (cell in food), game.horizon - state.turn - 1)
        if not _can_go_on(game, state.snake, cell, {*state.opponent}, food, moves):
            values[way] += game.death_reward
    return values


def _can_go_on(
    game: Snake, body: tuple[Cell, ...], cell: Cell, others: Collection[Cell], food: Collection[Cell], moves: int
) -> bool:
    """Whether a snake that enters a cell can then make this many moves without a wall, its body, or resting `others`."""
    if not moves:
        return True
    body = (cell, *(body if cell in food else body[:-1]))
    ahead = [end for action in game.actions if inside(end := neighbour(cell, action), game.rows, game.columns)]
    free = [end for end in ahead if end not in body and end not in others]
    return any(_can_go_on(game, body, end, others, food, moves - 1) for end in free)


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


class _Board:
    """One state, with predictions for the following turns (turn 1 is the move to choose)."""

    def __init__(self, game: Snake, state: SnakeState) -> None:
        self.game, self.state, self.bodies = game, state, {*state.snake, *state.opponent}
        self.items = [(item, cell) for item, cells in zip(game.items, state.items, strict=True) for cell in cells]
        (row, column), *_ = state.snake
        near = sorted((abs(r - row) + abs(c - column), k) for k, (item, (r, c)) in enumerate(self.items) if item.reward > 0)
        self.wanted = sorted(k for _, k in near[:PLANNED])
        """Indices of the nearest items with a positive reward."""
        chance = np.zeros((game.horizon - state.turn + len(state.snake) + 1, game.size, game.size))
        ahead = [neighbour(state.opponent[0], action) for action in game.actions] if state.opponent else []
        open_cells = [cell for cell in ahead if inside(cell, game.size, game.size) and cell not in state.opponent]
        for row, column in open_cells:
            chance[1, row, column] = 1 / len(open_cells)
        exits = np.full((game.size, game.size), 4.0)
        exits[[0, -1]] -= 1
        exits[:, [0, -1]] -= 1
        for turn in range(2, len(chance)):
            cells = np.broadcast_to(chance[turn - 1] / exits, (len(DIRECTIONS), 1, game.size, game.size))
            chance[turn] = _ahead(cells, 0.0)[:, 0].sum(axis=0)
        self.entered: Floats = chance.cumsum(axis=0)
        """The expected number of times the opponent's head has entered each cell after t turns: (T, S, S), zero for t = 0."""

    def entering(self, turn: int, value: Floats) -> Floats:
        """Q_t from V_t, both (D, W, S, S)."""
        # The probabilities that the opponent's head enters each cell now, that it did before, and that it hits the player there.
        before, so_far, until = self.entered[[turn - 1, turn, turn + len(self.state.snake)]]
        entered, visited, hit = so_far - before, np.minimum(before, 1), np.minimum(until - so_far, 1)
        later = value * (1 - hit)
        entering: Floats = later.copy()
        bonus = 1 + HASTE * (self.game.horizon - self.state.turn - turn)
        for k, (item, cell) in enumerate(self.items):
            for way, (row, column) in self._where(cell, turn):
                if k in self.wanted:
                    sets = (len(DIRECTIONS), -1, 2, 2 ** self.wanted.index(k), *value.shape[2:])  # axis 2: without k, with k
                    present, eaten = entering.reshape(sets)[:, :, 1], later.reshape(sets)[:, :, 0]
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

    def _where(self, cell: Cell, turn: int) -> Iterator[tuple[Any, Cell]]:
        """Where an item will be, as (last moves, cell): it rolls to the last row, or onto items there, unless held."""
        if not self.game.down_hill:
            yield slice(None), cell
            return
        below = sum(row > cell[0] and column == cell[1] for _, (row, column) in self.items)
        held, last = neighbour(cell, "Down") in self.bodies, self.game.size - 1 - below
        now, before = (min(cell[0] + turns - (turns > 0 and held), last) for turns in (turn, turn - 1))
        yield slice(None), (now, cell[1])
        if before != now:
            yield list(DIRECTIONS).index("Up"), (before, cell[1])
