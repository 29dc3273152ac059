"""How much of the spread over training seeds is a difference of the policies, and how much is chance in the test episodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msgrpo_hub.games import board_of, episode_seed, make_game, stream

Floats = NDArray[np.float64]

FEWEST = 0.5
"""Share of the episodes that must be on boards of several episodes."""


@cache
def boards_of_tests(game_id: str, episodes: int) -> tuple[str, ...]:
    """The board of each test episode."""
    game = make_game(game_id)
    seeds = [episode_seed(game_id, "test", index) for index in range(episodes)]
    return tuple(board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds)


def by_chance(rewards: Sequence[Sequence[float]], boards: Sequence[str]) -> float | None:
    """The standard deviation of a mean reward that chance in its episodes makes: replies that are sampled, and ice that slips.

    A policy plays a board several times, and what differs between these episodes is chance. The variance within each board is
    estimated, and the mean of n episodes has Σ_b n_b s_b² / n² of it; episodes that are alone on their board count as the others
    do. Policies that differ little have less than this in their spread, since all are played with the same draws.

    Args:
        rewards: of each policy, one per episode.
        boards: of the episodes.

    Returns:
        The root of the mean variance of the policies; None if too few episodes share a board.

    >>> by_chance([[1.0, 0.0, 1.0, 1.0]], ["a", "a", "b", "b"])
    0.25
    """
    groups = [np.flatnonzero(np.array(boards) == board) for board in dict.fromkeys(boards)]
    shared = [group for group in groups if len(group) > 1]
    covered = sum(map(len, shared))
    if covered < FEWEST * len(boards) or not covered:
        return None
    table = np.array(rewards)
    within = sum(len(group) * table[:, group].var(1, ddof=1) for group in shared)  # (policies,)
    return float(np.sqrt(np.mean(within) / covered / len(boards)))


class Causes(NamedTuple):
    """Variances of a mean reward, by what makes them."""

    setting: float
    seed: float
    """The same for every setting."""
    both: float
    """How a seed fares under one setting, other than by chance in the test episodes."""
    chance: float

    def shares(self) -> dict[str, float]:
        """Cause → its share of the whole, the largest first."""
        whole = sum(self) or 1.0
        return dict(sorted(((name, value / whole) for name, value in self._asdict().items()), key=lambda each: -each[1]))


def causes(means: Floats, chance: float) -> Causes:
    """The variance components of a two-way layout with one value per cell, settings and seeds random, none below zero.

    E.g. D. C. Montgomery, Design and Analysis of Experiments, on random effects: with A settings and S seeds, mean squares
    MS_A = S Σ (ā − m)² / (A − 1), MS_S = A Σ (s̄ − m)² / (S − 1) and MS_E of the residuals, the components are
    (MS_A − MS_E) / S, (MS_S − MS_E) / A and MS_E.

    Args:
        means: (A, S) mean rewards, A and S at least two.
        chance: the variance of a mean that chance in its episodes makes; a part of MS_E.
    """
    settings, seeds = means.shape
    mean, by_setting, by_seed = means.mean(), means.mean(1, keepdims=True), means.mean(0, keepdims=True)
    of_settings = seeds * ((by_setting - mean) ** 2).sum() / (settings - 1)
    of_seeds = settings * ((by_seed - mean) ** 2).sum() / (seeds - 1)
    rest = float(((means - by_setting - by_seed + mean) ** 2).sum() / (settings - 1) / (seeds - 1))
    part = min(chance, rest)
    return Causes(max(0.0, (of_settings - rest) / seeds), max(0.0, (of_seeds - rest) / settings), rest - part, part)
