"""Mean exact values over the lakes of a game: the scores of optimal and of random play, without playing an episode.

All lakes of up to 4 × 4 cells are enumerated with their probabilities, so their means are exact. Larger lakes and rLLM's lakes
are sampled. Many lakes are solved at once, by the same finite-horizon value iteration as in `games/solving.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games import stream
from msgrpo_hub.games.board import canonical, grid_rows, inside, neighbour
from msgrpo_hub.games.frozen_lake import FrozenLake

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

ENUMERATED = 4
"""The largest number of rows of lakes that are enumerated: 2^16 patterns of ice."""


@dataclass(frozen=True)
class Means:
    """Mean values over the lakes of a game; a standard error is 0 where all lakes are enumerated."""

    optimal: float
    random: float
    optimal_error: float = 0.0
    random_error: float = 0.0


def lake_means(game: FrozenLake, samples: int = 1000) -> Means:
    """The mean values of optimal and of uniformly random play over the lakes of a game.

    Args:
        game: a Frozen Lake without `exactly`.
        samples: the number of lakes to solve if they cannot be enumerated.
    """
    if game.size <= ENUMERATED and not game.maps.rows and game.maps.depth is None:
        return _enumerated(game)
    return sampled_means(game, 1 if game.maps.rows else samples)


def mean_of(means: list[Means]) -> Means:
    """The means of several games in equal shares."""
    columns = np.array([(m.optimal, m.random, m.optimal_error, m.random_error) for m in means])
    errors = np.sqrt((columns[:, 2:] ** 2).sum(axis=0)) / len(means)
    return Means(*map(float, columns[:, :2].mean(axis=0)), *map(float, errors))


def _enumerated(game: FrozenLake) -> Means:
    """Exact means over all patterns of ice, goals and starts, given that a path connects start and goal."""
    cells, total, random_ends = game.size**2, np.zeros(3), game.maps.random_ends
    patterns = (np.arange(2**cells)[None, :] >> np.arange(cells)[:, None] & 1).astype(bool)  # (C, B)
    boards = [canonical(grid_rows(game.size, game.size, {divmod(cell, game.size): "G"})) for cell in range(cells)]
    goals = [(boards.index(board), images) for board, images in Counter(boards).items()]  # one goal of each symmetry
    for goal, images in goals if random_ends else [(cells - 1, 1)]:
        ice = patterns[:, patterns[goal]]
        best, blind = _values(game, ice, np.repeat(np.arange(cells)[:, None] == goal, ice.shape[1], axis=1))
        reached = _reached(ice, goal, game.size)
        holes = (~ice).sum(axis=0).astype(np.float64)
        if game.maps.holes is not None:
            chances = np.where(holes == game.maps.holes, 1.0, 0.0)
        else:  # the probability of each pattern, up to a factor; start and goal are always ice
            chances = images * game.frozen_probability ** (cells - 2 - holes) * (1 - game.frozen_probability) ** holes
        for start in set(range(cells)) - {goal} if random_ends else {0}:
            kept = chances * reached[start]  # a start in a hole is not reached
            total += [kept.sum(), kept @ best[start], kept @ blind[start]]
    return Means(float(total[1] / total[0]), float(total[2] / total[0]))


def _reached(ice: Bools, goal: int, size: int) -> Bools:
    """The cells with a path over the ice to the goal, (C, B)."""
    reached, ends = np.zeros_like(ice), _ends(size)
    reached[goal] = True
    while True:
        near = [np.logical_or.reduce([reached[end] for end in ends[cell]]) & ice[cell] for cell in range(size**2)]
        if np.array_equal(grown := reached | np.array(near), reached):
            return reached
        reached = grown


def sampled_means(game: FrozenLake, samples: int) -> Means:
    """Means over sampled lakes, with standard errors."""
    rng, cells = stream(0, "initial_state"), list(np.ndindex(game.size, game.size))
    lakes = [game.maps.sample(game.size, game.frozen_probability, rng) for _ in range(samples)]
    ice = np.array([[cell not in holes for holes, _, _ in lakes] for cell in cells])
    goals = np.array([[cell == goal for _, _, goal in lakes] for cell in cells])
    starts = np.array([cells.index(start) for _, start, _ in lakes])
    values = np.array([table[starts, np.arange(samples)] for table in _values(game, ice, goals)])
    errors = values.std(axis=1, ddof=1) / np.sqrt(samples) if samples > 1 else np.zeros(2)
    return Means(*map(float, values.mean(axis=1)), *map(float, errors))


def _ends(size: int) -> list[list[int]]:
    """Cell → the cells that the four moves enter; a move off the board stays."""
    ends = []
    for cell in np.ndindex(size, size):
        moved = [neighbour(cell, action) for action in FrozenLake.actions]
        ends.append([r * size + c if inside((r, c), size, size) else cell[0] * size + cell[1] for r, c in moved])
    return ends


def _values(game: FrozenLake, ice: Bools, goals: Bools) -> tuple[Floats, Floats]:
    """Values of optimal and of random play from every cell of B lakes, before the first turn; all arrays are (C, B)."""
    intended = (1 / 3 if game.success_rate is None else game.success_rate) if game.slippery else 1.0
    side, ends_of = (1 - intended) / 2, _ends(game.size)
    best, blind = np.zeros(ice.shape), np.zeros(ice.shape)
    for _ in range(game.horizon):
        for values in (best, blind):
            values[goals] = game.goal_reward  # a hole keeps 0
        optimal, uniform = np.zeros(ice.shape), np.zeros(ice.shape)
        for cell, ends in enumerate(ends_of):
            ahead = [best[end] for end in ends]
            slips = [intended * ahead[a] + side * (ahead[a - 1] + ahead[a - 3]) for a in range(4)] if side else ahead
            optimal[cell] = np.maximum.reduce(slips)
            uniform[cell] = sum(blind[end] for end in ends) / 4  # a slip of a random move is a random move
        best, blind = np.where(ice, optimal, 0.0), np.where(ice, uniform, 0.0)
    return best, blind
