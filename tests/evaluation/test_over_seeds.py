"""Normalised scores and intervals over training seeds: by hand, against scipy, and their coverage by simulation.

Bounds of simulations are four standard errors of a binomial proportion, and what is said beside them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.over_seeds import method_interval
from msgrpo_hub.evaluation.semantic import normalised
from msgrpo_hub.evaluation.statistics import Interval, mean_interval

numbers = st.floats(-100, 100)


def error(rate: float, repeats: int) -> float:
    """Four standard errors of a simulated rate."""
    return 4 * math.sqrt(rate * (1 - rate) / repeats)


# Normalised scores


def test_random_play_is_0_the_reference_is_1_and_nothing_is_clipped() -> None:
    assert normalised([-0.91, 1.99, 3.44, -2.36], random=-0.91, reference=1.99) == pytest.approx([0, 1, 1.5, -0.5])


def test_a_reference_below_random_play_turns_the_scale() -> None:
    """Greedy play on poisoned apples is worse than random play; the formula holds all the same."""
    assert normalised([-4.79, -1.94], random=-1.94, reference=-4.79) == pytest.approx([1, 0])


def test_a_task_that_tells_no_players_apart_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot normalise: random play and the reference both score 0\.25"):
        normalised([0.0, 1.0], random=0.25, reference=0.25)


@given(reward=numbers, random=numbers, reference=numbers, scale=st.floats(0.1, 10), shift=numbers)
def test_the_unit_of_the_rewards_does_not_matter(
    reward: float, random: float, reference: float, scale: float, shift: float
) -> None:
    assume(abs(reference - random) > 0.01)
    other = normalised([scale * reward + shift], scale * random + shift, scale * reference + shift)
    assert normalised([reward], random, reference) == pytest.approx(other, rel=1e-6, abs=1e-6)


# This method


def test_a_method_interval_by_hand() -> None:
    # Seed means 0, 1 and 2: 1 ± 4.302653 · 1 / √3.
    interval = method_interval([0.0, 1.0, 2.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((1 - 4.302653 / math.sqrt(3), 1 + 4.302653 / math.sqrt(3)))


@given(st.lists(numbers, min_size=3, max_size=12), st.sampled_from([0.8, 0.95, 0.99]))
def test_a_method_interval_agrees_with_scipy(means: list[float], level: float) -> None:
    assume(np.ptp(means) > 1e-3)
    interval = method_interval(means, level)
    expected = scipy.stats.t.interval(level, len(means) - 1, np.mean(means), scipy.stats.sem(means))
    assert interval is not None
    width = expected[1] - expected[0]  # an end may lie near zero, where a relative error says nothing
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-6, abs=1e-6 * width)


def training_runs(rng: np.random.Generator, seeds: int, episodes: int) -> np.ndarray:
    """Successes of a method worth 0.5, (seeds, episodes): its seeds' true rates have a standard deviation of 0.13."""
    return np.array([(rng.random(episodes) < rng.beta(7, 7)).astype(float) for _ in range(seeds)])


def share_that_covers(intervals: list[Interval | None], truth: float) -> float:
    return float(np.mean([i is not None and i.low <= truth <= i.high for i in intervals]))


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_the_method_interval_covers_what_another_training_would_give(seeds: int) -> None:
    rng = np.random.default_rng(25)
    intervals = [method_interval(training_runs(rng, seeds, 50).mean(axis=1)) for _ in range(300)]
    assert share_that_covers(intervals, 0.5) == pytest.approx(0.95, abs=error(0.95, 300))


def test_the_intervals_of_a_checkpoint_do_not_answer_for_the_method() -> None:
    """Five runs of 200 episodes taken as 1,000 independent episodes: a narrow interval that mostly misses."""
    rng = np.random.default_rng(26)
    runs = [training_runs(rng, 5, 200) for _ in range(200)]
    pooled = [mean_interval(run.flatten(), seed) for seed, run in enumerate(runs)]
    assert share_that_covers(pooled, 0.5) < 0.6
    assert share_that_covers([method_interval(run.mean(axis=1)) for run in runs], 0.5) == pytest.approx(
        0.95, abs=error(0.95, 200)
    )


@pytest.mark.parametrize(("seeds", "coverage"), [(3, 0.74), (5, 0.83)])
def test_resampling_whole_seeds_would_be_too_narrow(seeds: int, coverage: float) -> None:
    """Why the method interval is no bootstrap: the numbers in its docstring."""
    rng = np.random.default_rng(27)
    means = rng.normal(size=(1000, seeds, 1))
    drawn = np.take_along_axis(means, rng.integers(seeds, size=(1000, seeds, 999)), axis=1).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(coverage, abs=error(coverage, 1000))


def test_no_method_interval_under_3_seeds() -> None:
    assert method_interval([0.0, 1.0]) is None
    assert method_interval([1.0, 1.0, 1.0]) is None, "equal seeds say nothing of others"
    with pytest.raises(ValueError, match="a flat list of finite means"):
        method_interval([])
