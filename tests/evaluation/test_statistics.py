"""Intervals against hand-worked numbers, against scipy, and against what they promise: their coverage."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.evaluation.statistics import Interval, mean_interval, wilson

Z2 = 1.959963984540054**2


def test_wilson_of_no_success_is_zero_to_z2_over_n_plus_z2() -> None:
    assert wilson(0, 10) == Interval(0.0, pytest.approx(Z2 / (10 + Z2)))
    assert wilson(10, 10) == Interval(pytest.approx(10 / (10 + Z2)), 1.0)


def test_wilson_of_half_is_half_plus_minus_a_shrunken_normal() -> None:
    # p = 1/2: the centre stays 1/2, the half width is z / (2 √(n + z²)).
    half = (Z2 / (100 + Z2)) ** 0.5 / 2
    assert (wilson(50, 100).low, wilson(50, 100).high) == pytest.approx((0.5 - half, 0.5 + half))
    assert half == pytest.approx(0.0962, abs=5e-5)


@given(n=st.integers(1, 2000), share=st.floats(0, 1), level=st.sampled_from([0.8, 0.95, 0.99]))
@settings(deadline=None)
def test_wilson_agrees_with_scipy(n: int, share: float, level: float) -> None:
    successes = round(share * n)
    expected = scipy.stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    ours = wilson(successes, n, level)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected 0 ≤ successes"):
        wilson(successes, n)


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.25, 0.5, 0.75, 0.9])
def test_wilson_covers_the_true_rate_exactly_enumerated(n: int, rate: float) -> None:
    """The usual interval covers 0.64 at n = 20 and 0.05; Wilson stays near its level everywhere."""
    counts = np.arange(n + 1)
    held = [wilson(k, n).low <= rate <= wilson(k, n).high for k in counts]
    coverage = scipy.stats.binom.pmf(counts, n, rate)[held].sum()
    assert 0.92 <= coverage <= 0.985


def skewed_rewards(rng: np.random.Generator, n: int) -> np.ndarray:
    """Like Snake: a few apples, now and then many, and a death."""
    return rng.geometric(0.4, size=n) - 1.0 - 2.0 * (rng.random(n) < 0.3)


SKEWED_MEAN = 1 / 0.4 - 1 - 0.6


@pytest.mark.parametrize("n", [30, 50, 200])
@pytest.mark.parametrize("kind", ["rewards", "continuous", "rare success"])
def test_bca_agrees_with_scipy(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    sample = {
        "rewards": skewed_rewards(rng, n),
        "continuous": rng.lognormal(size=n),
        "rare success": (np.arange(n) < 3).astype(float),
    }[kind]
    expected = scipy.stats.bootstrap((sample,), np.mean, n_resamples=50_000, method="BCa", rng=1).confidence_interval
    ours = mean_interval(sample, seed=2)
    assert ours is not None
    error = 0.06 * (expected.high - expected.low)  # of the Monte Carlo, at 9,999 resamples
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=error)


@pytest.mark.parametrize(("n", "repeats"), [(50, 700), (200, 400)])
def test_bca_covers_the_mean_of_skewed_rewards(n: int, repeats: int) -> None:
    rng = np.random.default_rng(5)
    intervals = [mean_interval(skewed_rewards(rng, n), seed) for seed in range(repeats)]
    coverage = np.mean([i is not None and i.low <= SKEWED_MEAN <= i.high for i in intervals])
    assert 0.92 <= coverage <= 0.98


def test_no_interval_of_a_mean_under_30_values() -> None:
    assert mean_interval(np.arange(29.0), seed=0) is None
    assert mean_interval(np.arange(30.0), seed=0) is not None


def test_equal_values_give_a_point() -> None:
    assert mean_interval([0.1] * 40, seed=0) == Interval(0.1, 0.1)


@pytest.mark.lowest
def test_the_interval_depends_on_values_and_seed_alone() -> None:
    sample = skewed_rewards(np.random.default_rng(0), 60)
    first = mean_interval(sample, seed=1)
    assert mean_interval(sample[::-1], seed=1) == first
    assert mean_interval(sample.tolist(), seed=1) == first
    assert mean_interval(sample, seed=2) != first


def test_one_success_among_many_is_not_a_crash() -> None:
    for n in (30, 1000):
        interval = mean_interval([1.0] + [0.0] * (n - 1), seed=0)
        assert interval is not None
        assert 0 <= interval.low < 1 / n < interval.high


@pytest.mark.parametrize("values", [[float("nan")] * 40, [[0.0, 1.0]] * 40])
def test_values_that_have_no_mean_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="flat list of finite values"):
        mean_interval(values, seed=0)
