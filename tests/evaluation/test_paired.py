"""Paired comparisons against hand-worked and published numbers, against scipy, and against what they promise by simulation.

Bounds of simulations are four standard errors of a binomial proportion, or exact where the outcomes can be enumerated.
"""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from msgrpo_hub.evaluation.paired import Comparison, compare_paired, compare_tasks, holm, mcnemar, newcombe, sign_flip
from msgrpo_hub.evaluation.statistics import mean_interval

Z = scipy.stats.norm.ppf(0.975) + scipy.stats.norm.ppf(0.8)

probabilities = st.floats(0, 1)
integers = st.integers(-3, 3).map(float)
pairs = st.lists(st.tuples(integers, integers), min_size=1, max_size=40)


def error(rate: float, repeats: int) -> float:
    """Four standard errors of a simulated rate."""
    return 4 * math.sqrt(rate * (1 - rate) / repeats)


def columns(rows: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in rows], [b for _, b in rows]


# The sign-flip test


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3], 2 / 8),  # only + + + and − − −
        ([3, 1, -1], 6 / 8),  # sums ±5 once, ±3 twice, ±1 once each
        ([1, 1, 1, 1, -1], 12 / 32),  # ±5 once, ±3 five times each
        ([2, 0, 0], 1.0),
        ([0, 0], 1.0),
    ],
)
def test_sign_flip_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip(differences, seed=0) == pytest.approx(p)


def test_sums_that_differ_by_rounding_are_ties() -> None:
    # In floats six times 0.3 summed is more than 6 · 0.3, and 0.1 + 0.2 − 0.1 is more than 2 · 0.1.
    assert sign_flip([0.3] * 6, seed=0) == pytest.approx(2 / 64)
    assert sign_flip([0.1, 0.2, -0.1], seed=0) == pytest.approx(6 / 8)  # sums ±0.4 once, ±0.2 twice, 0 twice
    assert sign_flip([0.1, 0.2, -0.3], seed=0) == pytest.approx(1.0)


@pytest.mark.parametrize("n", [3, 7, 11])
@pytest.mark.parametrize("coarse", [True, False])
def test_the_enumerated_p_agrees_with_scipy(n: int, coarse: bool) -> None:
    for seed in range(5):
        differences = np.random.default_rng(seed).normal(0.6, 1, size=n).round(0 if coarse else 9)
        expected = scipy.stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert sign_flip(differences, seed=0) == pytest.approx(expected.pvalue)


def test_the_drawn_p_agrees_with_all_two_to_the_sixteenth_signs() -> None:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=16)))
    for seed in range(4):
        differences = np.random.default_rng(seed).normal(0.4, 1, size=16)
        exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)
        drawn = [sign_flip(differences, seed) for seed in range(5)]
        assert drawn == pytest.approx([exact] * 5, abs=error(exact, 9_999) + 1e-4)
        assert len(set(drawn)) > 1


def test_a_drawn_p_is_never_zero() -> None:
    assert sign_flip(np.arange(1.0, 101.0), seed=0) == 1 / 10_000


@pytest.mark.parametrize("kind", ["enumerated", "drawn"])
def test_equal_players_are_told_apart_as_rarely_as_promised(kind: str) -> None:
    """Both draw from one skewed distribution on boards that matter: p ≤ 0.05 in 5 % of experiments, no more."""
    rng = np.random.default_rng(11)
    n, repeats = (10, 3000) if kind == "enumerated" else (40, 800)
    boards = rng.geometric(0.3, size=(repeats, n, 1))
    rewards = boards + rng.geometric(0.5, size=(repeats, n, 2)) - 2.0 * (rng.random((repeats, n, 2)) < 0.3)
    p = np.array([sign_flip(row, seed) for seed, row in enumerate(rewards[..., 1] - rewards[..., 0])])
    assert np.mean(p <= 0.05) <= 0.05 + error(0.05, repeats)
    assert np.mean(p <= 0.05) >= 0.03 - error(0.03, repeats)  # ties in coarse rewards make it a little careful


def test_an_effect_of_the_detectable_size_is_found_8_times_in_10() -> None:
    rng = np.random.default_rng(12)
    n, repeats = 60, 500
    effect = Z * 3 / math.sqrt(n)
    p = [sign_flip(rng.normal(effect, 3, size=n).round(), seed) for seed in range(repeats)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.8, abs=error(0.8, repeats))


# McNemar's test and the difference of success rates


@given(only_a=st.integers(0, 400), only_b=st.integers(0, 400))
@settings(deadline=None)
def test_mcnemar_agrees_with_the_exact_binomial_test(only_a: int, only_b: int) -> None:
    assume(only_a + only_b > 0)
    expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_no_discordant_pair_is_one() -> None:
    assert mcnemar(0, 0) == 1.0


def test_mcnemar_of_many_pairs_does_not_overflow() -> None:
    assert mcnemar(20_000, 20_400) == pytest.approx(scipy.stats.binomtest(20_000, 40_400).pvalue, rel=1e-6)


def test_mcnemar_refuses_what_is_no_count() -> None:
    with pytest.raises(ValueError, match="expected two counts, got -1 and 3"):
        mcnemar(-1, 3)


@given(counts=st.tuples(*[st.integers(0, 30)] * 4))
@settings(deadline=None)
def test_successes_are_compared_by_mcnemar_and_newcombe(counts: tuple[int, int, int, int]) -> None:
    assume(sum(counts) > 0)
    cells = [(1, 1), (1, 0), (0, 1), (0, 0)]
    a, b = columns([cell for cell, count in zip(cells, counts, strict=True) for _ in range(count)])
    comparison = compare_paired(np.array(a, dtype=bool), np.array(b, dtype=bool), seed=0)
    assert comparison.p == pytest.approx(mcnemar(counts[1], counts[2]))
    assert comparison.interval == newcombe(*counts)
    assert comparison.difference == pytest.approx((counts[2] - counts[1]) / sum(counts))


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((12, 2, 9, 21), 0.0112, 0.2954),  # Newcombe 1998
        ((1, 7, 1, 12), -0.507, -0.026),  # Fagerland, Lydersen and Laake 2014, table V
    ],
)
def test_newcombe_reproduces_published_examples(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    interval = newcombe(*counts)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize("n", [20, 30, 50])
@pytest.mark.parametrize(("rate_a", "rate_b"), [(0.5, 0.7), (0.5, 0.5), (0.05, 0.3), (0.9, 0.95), (0.97, 0.99)])
@pytest.mark.parametrize("together", [0.0, 0.5, 1.0])
def test_newcombe_covers_the_difference_exactly_enumerated(n: int, rate_a: float, rate_b: float, together: float) -> None:
    """`together`: from independent players to the weaker succeeding only where the stronger does."""
    both = (1 - together) * rate_a * rate_b + together * min(rate_a, rate_b)
    chances = np.clip([both, rate_a - both, rate_b - both, 1 - rate_a - rate_b + both], 0, 1)
    tables = [(i, j, k, n - i - j - k) for i in range(n + 1) for j in range(n + 1 - i) for k in range(n + 1 - i - j)]
    likely = scipy.stats.multinomial.pmf(tables, n, chances / chances.sum())
    intervals = [newcombe(*table) if p > 1e-9 else None for table, p in zip(tables, likely, strict=True)]
    held = [i is not None and i.low - 1e-9 <= rate_b - rate_a <= i.high + 1e-9 for i in intervals]
    assert likely[held].sum() >= 0.93


def test_a_bootstrap_of_rare_differences_does_not_cover() -> None:
    """Why successes have an interval of their own: most samples hold no difference at all, or a single one."""
    rng = np.random.default_rng(13)
    a, b = rng.random((400, 30)) < 0.97, rng.random((400, 30)) < 0.99
    intervals = [mean_interval(row, seed) for seed, row in enumerate(b.astype(float) - a)]
    assert np.mean([i is not None and i.low <= 0.02 <= i.high for i in intervals]) < 0.65


# Holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 · 0.01, then 2 · 0.03 over 1 · 0.04
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(probabilities, min_size=1, max_size=6))
@settings(deadline=None)
def test_holm_is_the_closed_test_with_bonferroni(p_values: list[float]) -> None:
    """A hypothesis falls where every set of hypotheses that holds it falls: that is where the familywise level is from."""
    members = range(len(p_values))
    sets = [chosen for size in range(1, len(p_values) + 1) for chosen in itertools.combinations(members, size)]
    bonferroni = {chosen: min(1.0, len(chosen) * min(p_values[i] for i in chosen)) for chosen in sets}
    expected = [max(p for chosen, p in bonferroni.items() if i in chosen) for i in members]
    assert holm(p_values) == pytest.approx(expected)


@given(st.lists(probabilities, max_size=30), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_holm_keeps_the_order_of_p_and_forgets_the_order_of_rows(p_values: list[float], random: Random) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    assert sorted(adjusted) == [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    shuffled = list(range(len(p_values)))
    random.shuffle(shuffled)
    assert holm([p_values[i] for i in shuffled]) == [adjusted[i] for i in shuffled]


def test_holm_holds_the_familywise_level() -> None:
    families = np.random.default_rng(14).random((5000, 8))
    families[:, :3] *= 1e-4  # three true differences among five equalities
    wrong = np.mean([min(holm(family.tolist())[3:]) < 0.05 for family in families])
    assert wrong == pytest.approx(1 - (1 - 0.05 / 5) ** 5, abs=error(0.05, 5000))


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
        detectable=pytest.approx(Z * math.sqrt(5 / 3) / 2),
    )
    assert comparison.verdict == "inconclusive"


def test_fifty_unpaired_episodes_find_28_points_at_best() -> None:
    """The paper's 50 episodes at a success rate of one half, the players unrelated."""
    a, b = columns([(0, 0), (0, 1), (1, 0), (1, 1)] * 13)
    comparison = compare_paired(a, b, seed=0)
    assert (comparison.n, comparison.correlation) == (52, pytest.approx(0))
    assert comparison.detectable == pytest.approx(0.28, abs=0.005)


@given(rows=pairs)
@settings(deadline=None)
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
@settings(deadline=None)
def test_the_order_of_the_seeds_changes_nothing(rows: list[tuple[float, float]], random: Random) -> None:
    first = compare_paired(*columns(rows), seed=3)
    random.shuffle(rows)
    assert compare_paired(*columns(rows), seed=3) == approximately(first)


@given(rows=pairs)
@settings(deadline=None)
def test_swapping_the_players_turns_the_sign_alone(rows: list[tuple[float, float]]) -> None:
    a, b = columns(rows)
    there, back = compare_paired(a, b, seed=4), compare_paired(b, a, seed=4)
    assert back.difference == pytest.approx(-there.difference)
    assert back.p == there.p
    assert (back.correlation, back.detectable) == pytest.approx((there.correlation, there.detectable))
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
    a, b = boards + rng.normal(0, 0.1, size=60), boards + rng.normal(0.1, 0.1, size=60)
    comparison = compare_paired(a, b, seed=5)
    assert comparison.interval == mean_interval(b - a, seed=5)
    assert comparison.correlation is not None
    assert comparison.correlation > 0.9
    assert comparison.verdict == "better"  # the boards differ by 1, the players by 0.1: only pairing finds it
    assert compare_paired(b, a, seed=5).verdict == "worse"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 2.0], [1.0], r"one length, got shapes \(2,\) and \(1,\)"),
        ([], [], "one length"),
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
    assert lake.rewards == lake.success
    assert lake.success.p == pytest.approx(22 / 1024)
    assert lake.success.p_adjusted == pytest.approx(4 * 22 / 1024)
    assert (snake.success.p, snake.success.p_adjusted, snake.rewards.p_adjusted) == (1.0, 1.0, 1.0)
    assert compare_paired(lake_a, lake_b, seed=0).verdict == "better"
    assert lake.success.verdict == "inconclusive"  # four looks at once


def test_what_a_task_shows_alone_does_not_depend_on_the_other_tasks() -> None:
    rng = np.random.default_rng(16)
    snake = (rng.integers(-2, 5, 60), rng.integers(-2, 6, 60), rng.random(60) < 0.5, rng.random(60) < 0.6)
    other = (rng.normal(size=40), rng.normal(size=40), np.ones(40), np.ones(40))
    (alone,) = compare_tasks({"snake": snake}, seed=6)
    _, among = compare_tasks({"other": other, "snake": snake}, seed=6)
    assert (alone.rewards.p, alone.rewards.interval) == (among.rewards.p, among.rewards.interval)
    assert alone.rewards.p_adjusted <= among.rewards.p_adjusted
