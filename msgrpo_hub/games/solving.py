"""Exact values of games that are small enough to solve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.game import Game
from msgrpo_hub.games.seeds import stream

Floats = npt.NDArray[np.float64]


TIE = 1e-12
"""Actions whose values differ by less are equally good: what is left between them is rounding."""


@dataclass(frozen=True)
class LakeValues:
    """What one lake is worth, from every cell and with every number of turns left.

    Shapes: T = horizon + 1 turns left, S = size² cells in reading order, A = 4 actions in the game's order. A cell that
    ends the episode is worth 0: the goal's reward belongs to the step that enters it.

    >>> lake = FrozenLake("lake", size=2, slippery=True, horizon=3)
    >>> values = lake_values(lake, holes=((0, 1),))
    >>> values.optimal[:, 0].round(3).tolist(), values.uniform[:, 0].round(3).tolist()
    ([0.0, 0.0, 0.111, 0.259], [0.0, 0.0, 0.062, 0.125])
    """

    size: int
    q: Floats
    """q[t, s, a]: the expected return of action a, then optimal play; (T, S, A)."""
    optimal: Floats
    """optimal[t, s] = max_a q[t, s, a]; (T, S)."""
    uniform: Floats
    """uniform[t, s]: the expected return of actions drawn uniformly; (T, S)."""

    def action_values(self, cell: Cell, turns_left: int) -> Floats:
        """Q*(s, ·), shape (A,)."""
        values: Floats = self.q[turns_left, cell[0] * self.size + cell[1]]
        return values


@lru_cache(maxsize=8)
def _transitions(game: FrozenLake) -> Floats:
    """P[s, a, s'] on ice without holes, shape (S, A, S), from the game's own rules; holes only say where play ends."""
    table = np.zeros((game.size**2, len(game.actions), game.size**2))
    for index in range(game.size**2):
        state = LakeState(game.size, (), divmod(index, game.size))
        for a, action in enumerate(game.actions):
            for probability, after in game.outcomes(state, action):
                table[index, a, after.player[0] * game.size + after.player[1]] += float(probability)
    return table


@lru_cache(maxsize=1024)
def lake_values(game: FrozenLake, holes: tuple[Cell, ...]) -> LakeValues:
    """Solves one lake for every number of turns up to the game's horizon.

    Q_t(s, a) = Σ_s' P(s' | s, a) (r(s') + V_{t−1}(s')), V_t = max_a Q_t, V_0 = 0.
    """
    step, cells, goal = _transitions(game), game.size**2, game.size**2 - 1
    ends = [goal, *(row * game.size + column for row, column in holes)]
    q = np.zeros((game.horizon + 1, cells, len(game.actions)))
    uniform = np.zeros((game.horizon + 1, cells))
    reward = np.eye(cells)[goal]
    for turns in range(1, game.horizon + 1):
        gain = reward * game.goal_counts(turns)
        q[turns] = step @ (gain + q[turns - 1].max(axis=1))
        uniform[turns] = step.mean(axis=1) @ (gain + uniform[turns - 1])
        q[turns, ends] = uniform[turns, ends] = 0.0
    return LakeValues(game.size, q, q.max(axis=2), uniform)


def optimal_actions(game: Game, state: Any) -> tuple[str, ...]:
    """All optimal actions, in the game's order. Raises `UserError` for a game that is not solved."""
    lake = solved_lake(game)
    values = lake_values(lake, state.holes).action_values(state.player, lake.horizon - state.turn)
    return tuple(lake.actions[a] for a in best_actions(values, range(len(values))))


def best_actions(values: Floats, actions: Iterable[int]) -> list[int]:
    """Those of some actions that are as good as the best of them."""
    given = list(actions)
    return [a for a in given if values[a] >= values[given].max() - TIE]


def optimal_value(game: Game, seed: int) -> float:
    """The expected return of optimal play from the initial state of an episode seed; `UserError` as above."""
    values, cell = _at_the_start(game, seed)
    return float(values.optimal[-1, cell])


def random_value(game: Game, seed: int) -> float:
    """The expected return of the player `random` from the initial state of an episode seed; `UserError` as above."""
    values, cell = _at_the_start(game, seed)
    return float(values.uniform[-1, cell])


def _at_the_start(game: Game, seed: int) -> tuple[LakeValues, int]:
    lake = solved_lake(game)
    state = lake.initial_state(stream(seed, "initial_state"))
    return lake_values(lake, state.holes), state.player[0] * lake.size + state.player[1]


def solved_lake(game: Game) -> FrozenLake:
    if not isinstance(game, FrozenLake):
        raise UserError(f"{game.id} has no exact optimum, only Frozen Lake has: use the player 'greedy' instead of 'optimal'")
    return game
