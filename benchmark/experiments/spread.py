"""How much of the spread over training seeds is a difference of policies, and how much is chance in the test episodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msgrpo_hub.games import board_of, episode_seed, make_game, stream

FEWEST = 0.5
"""This share of the episodes must be on boards with several episodes."""


@cache
def boards_of_tests(game_id: str, episodes: int) -> tuple[str, ...]:
    """The board of each test episode."""
    game = make_game(game_id)
    seeds = [episode_seed(game_id, "test", index) for index in range(episodes)]
    return tuple(board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds)


def by_chance(rewards: Sequence[Sequence[float]], boards: Sequence[str]) -> float | None:
    """The standard deviation of a mean reward due to chance in its episodes: sampled replies and slippery ice.

    A policy plays a board several times, and only chance makes these episodes differ. With variance s_b² on board b, the mean of
    n episodes has the variance Σ_b n_b s_b² / n²; an episode without another on its board counts as average. Policies that differ
    little can spread less than this, since all are played with the same random numbers.

    Args:
        rewards: a reward per episode, for each policy.
        boards: of the episodes.

    Returns:
        The root of the mean variance of the policies; None if too few episodes share a board.
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
    """Variance components of a mean reward."""

    setting: float
    seed: float
    """Equal for every setting."""
    both: float
    """Luck of a seed under one setting, except for chance in the test episodes."""
    chance: float

    def shares(self) -> dict[str, float]:
        """Component → share of the total, the largest first."""
        whole = sum(self) or 1.0
        return dict(sorted(((name, value / whole) for name, value in self._asdict().items()), key=lambda each: -each[1]))


def causes(means: NDArray[np.float64], chance: float) -> Causes:
    """The variance components of a two-way layout with one value per cell, settings and seeds random, none below zero.

    See D. C. Montgomery, Design and Analysis of Experiments, on random effects: with A settings and S seeds, mean squares
    MS_A = S Σ (ā − m)² / (A − 1), MS_S = A Σ (s̄ − m)² / (S − 1) and MS_E of the residuals, the components are
    (MS_A − MS_E) / S, (MS_S − MS_E) / A and MS_E.

    Args:
        means: (A, S) mean rewards, A and S at least two.
        chance: the variance of a mean due to chance in its episodes, a part of MS_E.
    """
    settings, seeds = means.shape
    mean, by_setting, by_seed = means.mean(), means.mean(1, keepdims=True), means.mean(0, keepdims=True)
    of_settings = seeds * ((by_setting - mean) ** 2).sum() / (settings - 1)
    of_seeds = settings * ((by_seed - mean) ** 2).sum() / (seeds - 1)
    rest = float(((means - by_setting - by_seed + mean) ** 2).sum() / (settings - 1) / (seeds - 1))
    part = min(chance, rest)
    return Causes(max(0.0, (of_settings - rest) / seeds), max(0.0, (of_seeds - rest) / settings), rest - part, part)
