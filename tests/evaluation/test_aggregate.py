"""Aggregates against hand-worked numbers, against scipy, and against what they promise: their coverage by simulation.

Bounds of simulations are four standard errors of a binomial proportion, and what is said beside them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.aggregate import Aggregate, aggregate, method_interval, normalised
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


# This checkpoint


def checkpoint(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Two lakes and a snake, n episodes each."""
    snake = (rng.geometric(0.4, size=n) - 1.0 - 2.0 * (rng.random(n) < 0.3)) / 4
    lakes = {f"lake {rate}": (rng.random(n) < rate).astype(float) for rate in (0.3, 0.9)}
    return {**lakes, "snake": snake}


TRUE_MEAN = np.mean([0.3, 0.9, (1 / 0.4 - 1 - 0.6) / 4])
TRUE_IQM = scipy.stats.trim_mean(np.concatenate(list(checkpoint(np.random.default_rng(1), 300_000).values())), 0.25)


def test_an_aggregate_by_hand() -> None:
    result = aggregate({"a": [0, 0, 1, 1], "b": [2, 3, 10, -5]}, seed=0)
    # In order −5 0 0 1 1 2 3 10: the middle four are 0 1 1 2.
    assert result == Aggregate(tasks=2, mean=1.5, mean_interval=None, iqm=pytest.approx(1.0), iqm_interval=None)


def test_a_quartile_through_a_value_keeps_its_part() -> None:
    # The middle half of 0 1 2 8 9 10 is half of 1, then 2 and 8, then half of 9.
    assert aggregate({"a": [0, 1, 2, 8, 9, 10]}, seed=0).iqm == pytest.approx((0.5 + 2 + 8 + 4.5) / 3)
    assert aggregate({"a": [7.0]}, seed=0).iqm == pytest.approx(7.0)


@given(st.lists(st.lists(numbers, min_size=8, max_size=8), min_size=1, max_size=5))
def test_the_interquartile_mean_agrees_with_scipy(scores: list[list[float]]) -> None:
    result = aggregate({str(task): sample for task, sample in enumerate(scores)}, seed=0)
    assert result.iqm == pytest.approx(scipy.stats.trim_mean(np.ravel(scores), 0.25), abs=1e-9)
    assert result.mean == pytest.approx(np.mean(scores), abs=1e-9)


@given(st.lists(numbers, min_size=1, max_size=8), st.lists(numbers, min_size=1, max_size=8), st.integers(2, 5))
def test_a_task_with_more_episodes_weighs_no_more(first: list[float], second: list[float], times: int) -> None:
    once, more = aggregate({"a": first, "b": second}, seed=0), aggregate({"a": first * times, "b": second}, seed=0)
    assert (once.mean, once.iqm) == pytest.approx((more.mean, more.iqm), abs=1e-9)


@pytest.mark.parametrize(("n", "repeats"), [(50, 250), pytest.param(200, 150, marks=pytest.mark.long)])
def test_both_intervals_of_a_checkpoint_cover(n: int, repeats: int) -> None:
    rng = np.random.default_rng(21)
    results = [aggregate(checkpoint(rng, n), seed) for seed in range(repeats)]
    means = [r.mean_interval is not None and r.mean_interval.low <= TRUE_MEAN <= r.mean_interval.high for r in results]
    iqms = [r.iqm_interval is not None and r.iqm_interval.low <= TRUE_IQM <= r.iqm_interval.high for r in results]
    assert np.mean(means) == pytest.approx(0.95, abs=error(0.95, repeats))
    assert np.mean(iqms) == pytest.approx(0.95, abs=error(0.95, repeats))
    spread = np.std([r.mean for r in results]) / math.sqrt(repeats)
    assert np.mean([r.mean for r in results]) == pytest.approx(TRUE_MEAN, abs=4 * spread)


def test_the_mean_of_one_task_has_nearly_the_interval_of_a_mean() -> None:
    sample = checkpoint(np.random.default_rng(22), 200)["snake"]
    ours, bca = aggregate({"snake": sample}, seed=0).mean_interval, mean_interval(sample, seed=0)
    assert ours is not None
    assert bca is not None
    assert (ours.low, ours.high) == pytest.approx((bca.low, bca.high), abs=0.05 * (bca.high - bca.low))


def test_episodes_are_drawn_within_their_own_task() -> None:
    """Tasks differ, but no task's episodes do: there is no chance in it. Drawn from one pot, the mean would vary."""
    result = aggregate({"easy": [1.0] * 40, "hard": [0.0] * 40, "middle": [0.5] * 40}, seed=0)
    for estimate, interval in ((result.mean, result.mean_interval), (result.iqm, result.iqm_interval)):
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((estimate, estimate))


def test_extreme_episodes_move_the_mean_and_not_the_interquartile_mean() -> None:
    scores = checkpoint(np.random.default_rng(23), 100)
    before = aggregate(scores, seed=0)
    scores["snake"][np.argmax(scores["snake"])] = 1e6
    after = aggregate(scores, seed=0)
    assert after.mean > before.mean + 1000
    assert after.iqm == pytest.approx(before.iqm)


@pytest.mark.lowest
def test_the_intervals_depend_on_scores_and_seed_alone() -> None:
    scores = checkpoint(np.random.default_rng(24), 60)
    first = aggregate(scores, seed=1)
    assert aggregate({task: sample[::-1].tolist() for task, sample in scores.items()}, seed=1) == first
    assert aggregate(scores, seed=2).mean_interval != first.mean_interval


def test_no_intervals_where_a_task_has_under_30_episodes() -> None:
    full, short = np.arange(30.0), np.arange(29.0)
    assert aggregate({"a": full, "b": full}, seed=0).iqm_interval is not None
    result = aggregate({"a": full, "b": short}, seed=0)
    assert (result.mean_interval, result.iqm_interval) == (None, None)


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [[1.0]]}, {"a": [1.0], "b": [float("inf")]}])
def test_scores_that_have_no_mean_are_refused(scores: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="each a flat list of finite numbers"):
        aggregate(scores, seed=0)


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
    with pytest.raises(ValueError, match="one or more groups"):
        method_interval([])
