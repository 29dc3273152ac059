"""The detectable effect is found 8 times in 10 by the test beside it, alone and under Holm's strictest step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from msgrpo_hub.evaluation.paired import compare_paired, sign_flip
from tests.evaluation.pairs import error

SIZES, FAMILIES = (50, 200, 500), (1, 8, 40)


def successes(n: int, cells: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Two players with the given shares of boards on which both, only a and only b succeed."""
    both, only_a, only_b = (round(n * share) for share in cells)
    a, b = np.zeros(n), np.zeros(n)
    a[: both + only_a] = 1
    b[:both] = b[both + only_a : both + only_a + only_b] = 1
    return a, b


def chance_of_a_verdict(n: int, only_a: float, only_b: float, level: float) -> float:
    """The power of McNemar's exact test, from scipy's distributions."""
    discordant = np.arange(n + 1)
    wins = np.arange(n + 1)[:, None]
    decisive = (2 * scipy.stats.binom.sf(wins - 1, discordant, 0.5) < level) & (wins <= discordant)
    won = scipy.stats.binom.pmf(wins, discordant, only_b / (only_a + only_b))
    return float(scipy.stats.binom.pmf(discordant, n, only_a + only_b) @ (won * decisive).sum(axis=0))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "cells", [(0.0, 0.02, 0.02), (0.02, 0.08, 0.08), (0.25, 0.25, 0.25), (0.45, 0.05, 0.05), (0.9, 0.04, 0.04)]
)
def test_a_detectable_gain_in_success_is_found_8_times_in_10(n: int, family: int, cells: tuple[float, float, float]) -> None:
    a, b = successes(n, cells)
    found = compare_paired(a, b, seed=0, family=family)
    assert found.detectable is not None
    assert found.correlation is not None
    rate = a.mean() if found.detectable > 0 else 1 - a.mean()
    other = rate + abs(found.detectable)
    both = rate * other + found.correlation * np.sqrt(rate * (1 - rate) * other * (1 - other))
    both = np.clip(both, max(0, rate + other - 1), min(rate, other))
    assert chance_of_a_verdict(n, rate - both, other - both, 0.05 / family) == pytest.approx(0.8, abs=0.005)


def test_pairs_that_can_find_no_difference_say_none() -> None:
    assert compare_paired([0, 1, 0, 1, 0], [0, 0, 1, 1, 0], seed=0).detectable is None  # p is 2 / 32 at best
    assert compare_paired([0, 2, 5, 1, 0], [1, 0, 3, 1, 4], seed=0).detectable is None
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (2, 60))
    assert compare_paired(a, b, seed=0, family=499).detectable is not None
    assert compare_paired(a, b, seed=0, family=500).detectable is None  # a drawn p is 1 / 10,000 at best
    assert compare_paired([3.0] * 40, [3.0] * 40, seed=0).detectable is None


def test_a_player_that_never_fails_can_only_be_lost_to() -> None:
    found = compare_paired([1] * 50, [1] * 50, seed=0)
    assert found.correlation is None  # taken as 0
    assert found.detectable is not None
    assert found.detectable < 0
    assert chance_of_a_verdict(50, 0.0, -found.detectable, 0.05) == pytest.approx(0.8, abs=0.005)


def test_rare_differences_in_returns_are_not_taken_for_a_spread_of_all() -> None:
    """Two of 50 boards differ: moving all 50 differences by 0.05 would be found always, and means nothing."""
    a = np.repeat([0.0, -1.0, -2.0], [48, 1, 1])
    found = compare_paired(a, np.zeros(50), seed=0, bounds=(-21.0, 0.0)).detectable
    assert found is not None
    assert found > 0.15


def returns(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Like Snake: apples and deaths of two equal players on boards that matter."""
    boards = rng.geometric(0.4, size=n)
    rewards = boards[:, None] + rng.geometric(0.5, size=(n, 2)) - 2.0 * (rng.random((n, 2)) < 0.3)
    return rewards[:, 0], rewards[:, 1]


def share_found(n: int, family: int, repeats: int) -> float:
    """How often the effect printed for one sample is found in another one."""
    rng, found = np.random.default_rng(n), []
    for seed in range(repeats):
        effect = compare_paired(*returns(rng, n), seed, bounds=(-99.0, 99.0), family=family).detectable
        assert effect is not None
        a, b = returns(rng, n)
        found.append(family * sign_flip(b - a + effect, seed) < 0.05)
    return float(np.mean(found))


def test_a_detectable_gain_in_returns_is_found_8_times_in_10() -> None:
    shares = [share_found(n, family, 15) for n in (50, 200) for family in (1, 8)]
    assert np.mean(shares) == pytest.approx(0.8, abs=0.05 + error(0.8, 60))


@pytest.mark.long
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", [1, 8])
def test_a_detectable_gain_in_returns_is_found_8_times_in_10_at_every_size(n: int, family: int, record_property: Any) -> None:
    share = share_found(n, family, 600)
    record_property("share found", share)
    assert 0.75 <= share <= 0.85
