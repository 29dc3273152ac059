"""Intervals over training seeds: by hand, and their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.statistics import Interval, mean_interval, method_interval, welch
from tests.evaluation.pairs import error


def test_a_method_interval_by_hand() -> None:
    # Seed means 0, 1 and 2: 1 ± 4.302653 · 1 / √3.
    interval = method_interval([0.0, 1.0, 2.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((1 - 4.302653 / math.sqrt(3), 1 + 4.302653 / math.sqrt(3)))


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=12), st.sampled_from([0.8, 0.95, 0.99]))
def test_a_method_interval_is_students(means: list[float], level: float) -> None:
    assume(np.ptp(means) > 1e-3)
    interval, half = method_interval(means, level), scipy.stats.t.ppf((1 + level) / 2, len(means) - 1) * scipy.stats.sem(means)
    assert interval
    expected = np.mean(means) - half, np.mean(means) + half
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-6, abs=1e-6 * half)


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


def test_no_method_interval_under_3_seeds() -> None:
    assert method_interval([0.0, 1.0]) is None
    assert method_interval([1.0, 1.0, 1.0]) is None, "equal seeds say nothing of others"
    with pytest.raises(ValueError, match="a flat list of finite means"):
        method_interval([])


def test_the_interval_of_two_methods_is_welch_s() -> None:
    """t.test(c(1, 2, 3, 4), c(2, 4, 6, 8)) in R: degrees of freedom 4.41, interval of mean(a) − mean(b) [−6.25, 1.25]."""
    interval = welch(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 6.0, 8.0]))
    assert interval
    assert (interval.low, interval.high) == pytest.approx((-1.25, 6.25), abs=0.15)
    assert welch(np.zeros(3), np.ones(3)) is None
