"""Intervals against hand-worked numbers, against scipy, and against what they promise: their coverage."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
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


@pytest.mark.parametrize("n", [30, 200])
def test_the_bootstrap_is_that_of_resampled_t_statistics(n: int) -> None:
    """The textbook's loop: draw episodes with replacement, and take the quantiles of (mean* − mean) / error*."""
    rng = np.random.default_rng(n)
    sample = skewed_rewards(rng, n)
    drawn = rng.choice(sample, (20_000, n))
    t = (drawn.mean(axis=1) - sample.mean()) / (drawn.std(axis=1) / n**0.5)
    low, high = sample.mean() - sample.std() / n**0.5 * np.quantile(t, [0.975, 0.025])
    ours = mean_interval(sample, seed=2)
    assert ours is not None
    assert ours.rule == "studentised bootstrap"
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.06 * (high - low))  # the Monte Carlo's error


def test_no_interval_of_a_mean_under_30_values_unless_they_are_0_and_1() -> None:
    assert mean_interval(np.arange(29.0), seed=0) is None
    assert mean_interval(np.arange(30.0), seed=0) is not None
    assert mean_interval([], seed=0) is None
    assert mean_interval([1.0] * 5 + [0.0], seed=0) == wilson(5, 6)


def test_values_of_0_and_1_have_the_interval_of_success_unless_other_values_are_possible() -> None:
    values = [1.0] * 30 + [0.0] * 20
    assert mean_interval(values, seed=0) == mean_interval(values, seed=0, bounds=(0.0, 1.0)) == wilson(30, 50)
    of_snake = mean_interval(values, seed=0, bounds=(-2.0, 20.0))
    assert of_snake is not None
    assert of_snake.rule == "studentised bootstrap"


@given(
    value=st.floats(-2, 20),
    others=st.lists(st.floats(-2, 20), max_size=5),
    n=st.integers(30, 300),
)
def test_nearly_equal_values_have_an_interval_from_the_return_range_or_none_and_never_a_point(
    value: float, others: list[float], n: int
) -> None:
    sample = [value] * (n - len(others)) + others
    interval = mean_interval(sample, seed=0, bounds=(-2.0, 20.0))
    assert interval is not None
    assert interval.rule == "betting on the return range"
    assert -2 <= interval.low <= np.mean(sample) + 1e-9
    assert np.mean(sample) - 1e-9 <= interval.high <= 20
    assert interval.high - interval.low > 22 * 2 / n
    without = mean_interval(sample, seed=0)
    assert without is None or without.rule == "wilson"


def test_all_equal_values_have_the_interval_that_the_bets_give_by_hand() -> None:
    """Half of the capital is staked whole: it is 0.5 m⁻ⁿ where every value is 1, and a twentieth of the rest adds little."""
    interval = mean_interval([20.0] * 50, seed=0, bounds=(-2.0, 20.0))
    assert interval is not None
    assert interval.high == 20.0
    by_hand = (0.5 / 40) ** (1 / 50)  # 0.5 m⁻⁵⁰ = 2 / 0.05
    assert by_hand <= (interval.low + 2) / 22 <= by_hand + 0.01


def test_episodes_on_one_board_count_as_one_value() -> None:
    rng = np.random.default_rng(3)
    boards = rng.geometric(0.4, size=40).astype(float)
    noise = rng.normal(0, 0.01, (40, 5))
    repeated = (boards[:, None] + noise).ravel()
    seeds = np.repeat(np.arange(40), 5)
    clustered = mean_interval(repeated, seed=0, boards=seeds.tolist())
    assert clustered == mean_interval((boards[:, None] + noise).mean(axis=1), seed=0)
    naive = mean_interval(repeated, seed=0)
    assert clustered is not None
    assert naive is not None
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)
    assert mean_interval(repeated[:145], seed=0, boards=seeds[:145].tolist()) is None  # 29 boards


@pytest.mark.lowest
def test_the_interval_depends_on_values_and_seed_alone() -> None:
    sample = skewed_rewards(np.random.default_rng(0), 60)
    first = mean_interval(sample, seed=1)
    assert mean_interval(sample[::-1], seed=1) == first
    assert mean_interval(sample.tolist(), seed=1) == first
    assert mean_interval(sample, seed=2) != first


def test_values_outside_the_bounds_are_refused_and_rounding_is_not() -> None:
    with pytest.raises(ValueError, match=r"from 0\.0 to 39\.0, expected 0\.0 to 20\.0"):
        mean_interval(np.arange(40.0), seed=0, bounds=(0.0, 20.0))
    interval = mean_interval([0.1 + 0.2] * 40, seed=0, bounds=(0.0, 0.3))
    assert interval is not None
    assert interval.high == 0.3


@pytest.mark.parametrize("values", [[float("nan")] * 40, [[0.0, 1.0]] * 40])
def test_values_that_have_no_mean_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="flat list of finite values"):
        mean_interval(values, seed=0)
