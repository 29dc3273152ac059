"""How much of the spread over training seeds is a difference of the policies, and how much is chance in the test episodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from msgrpo_hub.games import board_of, episode_seed, make_game, stream

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
