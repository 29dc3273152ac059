"""Ranks of players on the same episodes: which places in a table the data leave open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from msgrpo_hub.evaluation.paired import Floats, holm, sign_flip
from msgrpo_hub.evaluation.power import SIZE
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.statistics import RESAMPLES, board_means
from msgrpo_hub.evaluation.summary import plays

RANKS = (
    "rank: the places that paired tests leave open (sign flips of the rewards on the same seeds, Holm's correction over all\n"
    "pairs of the table); rows whose ranks overlap may be equally good"
)
"""What a rank in a table means."""


@dataclass(frozen=True, slots=True)
class Rank:
    """The places that a player may have."""

    best: int
    """1 plus the number of players that are better by the test."""
    worst: int
    """The number of players minus those that are worse by the test."""

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks(results: Sequence[Result]) -> list[Rank | None]:
    """The rank of each result on one task, in the order given; None for a run that is not complete or whose player does not play.

    Args:
        results: runs on the same episodes.
    """
    playing = [result for result in results if result.complete and plays(result.summary)]
    found = dict(zip(map(id, playing), ranks_of(_rewards(playing)), strict=True))
    return [found.get(id(result)) for result in results]


def _rewards(results: Sequence[Result]) -> list[Floats]:
    """Per result the mean reward on each seed, in the order of the seeds."""
    return [
        board_means(np.array([score.reward for score in result.scores]), [episode.seed for episode in result.episodes])
        for result in results
    ]


def ranks_of(rewards: Sequence[Floats]) -> list[Rank]:
    """The places that the test leaves open to each player.

    Every pair is tested as in `compare`, by sign flips of the paired differences, with Holm's correction over all pairs. All
    true places lie in these ranges with probability 0.95 (Mogstad, Romano, Shaikh and Wilhelm 2024, Inference for ranks).

    Args:
        rewards: one array per player, in the same order of seeds, shape [n].

    >>> best, also_good, worst = np.ones(30), np.r_[np.ones(29), 0], np.zeros(30)
    >>> [str(rank) for rank in ranks_of([also_good, worst, best])]
    ['1–2', '3', '1–2']
    """
    pairs = list(combinations(range(len(rewards)), 2))
    adjusted = holm([_p(np.round(rewards[b] - rewards[a], 9)) for a, b in pairs])
    better, worse = [0] * len(rewards), [0] * len(rewards)
    for (a, b), p in zip(pairs, adjusted, strict=True):
        if p < SIZE:
            winner, loser = (b, a) if rewards[b].mean() > rewards[a].mean() else (a, b)
            worse[winner] += 1
            better[loser] += 1
    return [Rank(1 + above, len(rewards) - below) for above, below in zip(better, worse, strict=True)]


def _p(differences: Floats) -> float:
    """The p of the sign-flip test, or a bound on it that decides the same: most pairs need no simulation.

    For differences d with sum S, random signs give a sum beyond |S|

    - with probability at least 7/32 if S² ≤ Σ d² (Hollom and Portier 2023, arXiv 2306.07811), which is never significant;
    - with probability at most 2 exp(−S² / (2 Σ d²)) (Hoeffding 1963). It counts where it is smaller than any simulated p, which
      a correction over hundreds of pairs would raise above 0.05.
    """
    total, squares = float(differences.sum()) ** 2, float((differences**2).sum())
    if total <= squares:
        return 1.0
    bound = 2 * math.exp(-total / (2 * squares))
    return bound if bound < 1 / (RESAMPLES + 1) else sign_flip(differences, seed=0)
