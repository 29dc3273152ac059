"""The comparison of two players on the same seeds."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.paired import Comparison, compare_paired, compare_tasks
from msgrpo_hub.evaluation.statistics import mean_interval
from tests.evaluation.pairs import columns

integers = st.integers(-3, 3).map(float)
pairs = st.lists(st.tuples(integers, integers), min_size=1, max_size=40)


# Comparisons


def test_a_comparison_by_hand() -> None:
    comparison = compare_paired([0, 1, 2, 3], [1, 3, 5, 3], seed=0)  # differences 1, 2, 3, 0
    assert comparison == Comparison(
        n=4,
        difference=1.5,
        interval=None,
        p=pytest.approx(2 / 8),
        p_adjusted=pytest.approx(2 / 8),
        correlation=pytest.approx(np.dot([-1.5, -0.5, 0.5, 1.5], [-2, 0, 2, 0]) / math.sqrt(5 * 8)),
        detectable=None,  # no signs of four pairs are rarer than 2 in 16
    )
    assert comparison.verdict == "inconclusive"


def test_fifty_unpaired_episodes_find_28_points_at_best() -> None:
    """The paper's 50 episodes at a success rate of one half, the players unrelated."""
    a, b = columns([(0, 0), (0, 1), (1, 0), (1, 1)] * 13)
    comparison = compare_paired(a, b, seed=0)
    assert (comparison.n, comparison.correlation) == (52, pytest.approx(0))
    assert comparison.detectable == pytest.approx(0.28, abs=0.01)


@given(rows=pairs)
def test_the_correlation_agrees_with_scipy(rows: list[tuple[float, float]]) -> None:
    a, b = columns(rows)
    correlation = compare_paired(a, b, seed=0).correlation
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert correlation is None
    else:
        assert correlation == pytest.approx(scipy.stats.pearsonr(a, b).statistic)


def test_equal_results_are_inconclusive_and_say_nothing_of_power() -> None:
    comparison = compare_paired([1.5] * 40, [1.5] * 40, seed=0)
    assert (comparison.p, comparison.correlation, comparison.detectable) == (1.0, None, None)
    assert comparison.verdict == "inconclusive"


@given(rows=pairs, random=st.randoms(use_true_random=False))
def test_the_order_of_the_seeds_changes_nothing(rows: list[tuple[float, float]], random: Random) -> None:
    first = compare_paired(*columns(rows), seed=3)
    random.shuffle(rows)
    assert compare_paired(*columns(rows), seed=3) == approximately(first)


@given(rows=pairs)
def test_swapping_the_players_turns_the_sign_alone(rows: list[tuple[float, float]]) -> None:
    a, b = columns(rows)
    there, back = compare_paired(a, b, seed=4), compare_paired(b, a, seed=4)
    assert back.difference == pytest.approx(-there.difference)
    assert back.p == there.p
    assert back.correlation == pytest.approx(there.correlation)
    assert back.verdict == {"better": "worse", "worse": "better"}.get(there.verdict, "inconclusive")
    if there.interval is not None and back.interval is not None:
        # The bootstrap of −x draws its values in another order.
        width = there.interval.high - there.interval.low
        assert (back.interval.low, back.interval.high) == pytest.approx(
            (-there.interval.high, -there.interval.low), abs=0.08 * width + 1e-9
        )


def approximately(comparison: Comparison) -> Comparison:
    """Equal up to the rounding of sums."""
    interval = comparison.interval
    return Comparison(
        n=comparison.n,
        difference=pytest.approx(comparison.difference),
        interval=interval and type(interval)(pytest.approx(interval.low), pytest.approx(interval.high)),
        p=comparison.p,
        p_adjusted=comparison.p_adjusted,
        correlation=pytest.approx(comparison.correlation),
        detectable=pytest.approx(comparison.detectable),
    )


@pytest.mark.lowest
def test_the_interval_of_rewards_is_that_of_the_paired_differences() -> None:
    rng = np.random.default_rng(15)
    boards = rng.normal(size=60)
    a, b = (np.round(boards + rng.normal(gain, 0.1, size=60), 9) for gain in (0, 0.1))
    comparison = compare_paired(a, b, seed=5)
    assert comparison.interval == mean_interval(b - a, seed=5)
    assert comparison.correlation is not None
    assert comparison.correlation > 0.9
    assert comparison.verdict == "better"  # the boards differ by 1, the players by 0.1: only pairing finds it
    assert compare_paired(b, a, seed=5).verdict == "worse"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 2.0], [1.0], r"equal length, got shapes \(2,\) and \(1,\)"),
        ([], [], "equal length"),
        ([[1.0]], [[1.0]], "flat lists"),
        ([1.0, float("nan")], [1.0, 2.0], "finite values"),
    ],
)
def test_lists_that_are_no_pairs_are_refused(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_paired(a, b, seed=0)


def test_tasks_are_one_family() -> None:
    # Lake: 9 seeds won only by b, 1 only by a: p = 22 / 1024 alone. Snake: no difference of any kind.
    lake_a, lake_b = [1] + [0] * 19, [0] + [1] * 9 + [0] * 10
    tasks = {"lake": (lake_a, lake_b, lake_a, lake_b), "snake": ([1, -2] * 10, [-2, 1] * 10, [0] * 20, [0] * 20)}
    lake, snake = compare_tasks(tasks, seed=0)
    assert (lake.task, snake.task) == ("lake", "snake")
    assert lake.rewards is lake.success  # the same numbers are one hypothesis
    assert lake.success.p == pytest.approx(22 / 1024)
    assert lake.success.p_adjusted == pytest.approx(3 * 22 / 1024)
    assert {c.family for c in (lake.success, snake.success, snake.rewards)} == {3}
    assert (snake.success.p, snake.success.p_adjusted, snake.rewards.p_adjusted) == (1.0, 1.0, 1.0)
    assert compare_paired(lake_a, lake_b, seed=0).verdict == "better"
    assert lake.success.verdict == "inconclusive"  # three looks at once


def test_what_a_task_shows_alone_does_not_depend_on_the_other_tasks() -> None:
    rng = np.random.default_rng(16)
    snake = (rng.integers(-2, 5, 60), rng.integers(-2, 6, 60), rng.random(60) < 0.5, rng.random(60) < 0.6)
    other = (rng.normal(size=40), rng.normal(size=40), np.ones(40), np.ones(40))
    (alone,) = compare_tasks({"snake": snake}, seed=6)
    _, among = compare_tasks({"other": other, "snake": snake}, seed=6)
    assert (alone.rewards.p, alone.rewards.interval) == (among.rewards.p, among.rewards.interval)
    assert alone.rewards.p_adjusted <= among.rewards.p_adjusted
