"""Two players on the same seeds: the comparison, its test, its power, Holm's correction, and the ranks of many players."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.paired import Comparison, Rank, compare_paired, compare_tasks, holm, newcombe, ranks_of, sign_flip
from msgrpo_hub.evaluation.statistics import mean_interval
from tests.evaluation.played import error

Pairs = list[tuple[float, float]]
integers = st.integers(-3, 3).map(float)
pairs = st.lists(st.tuples(integers, integers), min_size=1, max_size=40)
probabilities = st.floats(0, 1)


def columns(rows: Pairs) -> tuple[list[float], list[float]]:
    return [a for a, _ in rows], [b for _, b in rows]


# ---- comparisons


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
    equal = compare_paired([1.5] * 40, [1.5] * 40, seed=0)
    assert (equal.p, equal.correlation, equal.detectable, equal.verdict) == (1.0, None, None, "inconclusive")


@given(rows=pairs, random=st.randoms(use_true_random=False))
def test_swapped_players_change_the_sign_and_another_order_of_the_seeds_changes_nothing(rows: Pairs, random: Random) -> None:
    a, b = columns(rows)
    there, back = compare_paired(a, b, seed=4), compare_paired(b, a, seed=4)
    assert (back.difference, back.correlation) == (pytest.approx(-there.difference), pytest.approx(there.correlation))
    assert there.correlation is None or there.correlation == pytest.approx(scipy.stats.pearsonr(a, b).statistic)
    assert (there.correlation is None) == (len(set(a)) == 1 or len(set(b)) == 1)
    assert back.p == there.p
    assert back.verdict == {"better": "worse", "worse": "better"}.get(there.verdict, "inconclusive")
    if there.interval is not None and back.interval is not None:  # the bootstrap of −x draws its values in another order
        width = there.interval.high - there.interval.low
        swapped = (-there.interval.high, -there.interval.low)
        assert (back.interval.low, back.interval.high) == pytest.approx(swapped, abs=0.08 * width + 1e-9)
    random.shuffle(rows)
    shuffled = compare_paired(*columns(rows), seed=4)
    assert (shuffled.p, shuffled.difference, shuffled.detectable) == pytest.approx((there.p, there.difference, there.detectable))
    if there.interval and shuffled.interval:
        assert (shuffled.interval.low, shuffled.interval.high) == pytest.approx((there.interval.low, there.interval.high))


def test_returns_that_are_summed_in_another_order_are_equal() -> None:
    turns = np.random.default_rng(0).integers(3, 9, 100)
    first = [sum([1.0, *[-0.1] * turn]) for turn in turns]
    second = [sum([*[-0.1] * turn, 1.0]) for turn in turns]
    assert first != second
    found = compare_paired(first, second, 0, bounds=(-2.0, 1.0))
    assert (found.difference, found.p, found.verdict) == (0.0, 1.0, "inconclusive")
    assert found == compare_paired(first, first, 0, bounds=(-2.0, 1.0))
    assert [str(rank) for rank in ranks_of([np.array(first), np.array(second)])] == ["1–2", "1–2"]


@pytest.mark.lowest
def test_the_interval_of_rewards_is_the_interval_of_the_paired_differences() -> None:
    rng = np.random.default_rng(15)
    boards = rng.normal(size=60)
    a, b = (np.round(boards + rng.normal(gain, 0.1, size=60), 9) for gain in (0, 0.1))
    comparison = compare_paired(a, b, seed=5)
    assert comparison.interval == mean_interval(b - a, seed=5)
    assert comparison.verdict == "better"  # the boards differ by 1, the players by 0.1: only pairing finds it


def test_tasks_are_one_family_that_changes_only_the_adjusted_p() -> None:
    # Lake: 9 seeds won only by b, 1 only by a: p = 22 / 1024 alone. Snake: no difference of any kind.
    lake_a, lake_b = [1] + [0] * 19, [0] + [1] * 9 + [0] * 10
    tasks = {"lake": (lake_a, lake_b, lake_a, lake_b), "snake": ([1, -2] * 10, [-2, 1] * 10, [0] * 20, [0] * 20)}
    lake, snake = compare_tasks(tasks, seed=0)  # type: ignore[arg-type]
    assert (lake.task, snake.task) == ("lake", "snake")
    assert lake.rewards is lake.success  # the same numbers are one hypothesis
    assert (lake.success.p, lake.success.p_adjusted) == pytest.approx((22 / 1024, 3 * 22 / 1024))
    assert {c.family for c in (lake.success, snake.success, snake.rewards)} == {3}
    assert (snake.success.p, snake.success.p_adjusted, snake.rewards.p_adjusted) == (1.0, 1.0, 1.0)
    alone = compare_paired(lake_a, lake_b, seed=0)
    assert (alone.verdict, lake.success.verdict) == ("better", "inconclusive")
    assert (alone.p, alone.interval) == (lake.success.p, lake.success.interval)
    returns = np.random.default_rng(16).integers(-2, 6, (2, 60))
    *_, among = compare_tasks(tasks | {"returns": (*returns, [0] * 60, [1] * 60)}, seed=6)  # type: ignore[dict-item]
    [only] = compare_tasks({"returns": (*returns, [0] * 60, [1] * 60)}, seed=6)
    assert only.rewards.interval
    assert (only.rewards.p, only.rewards.interval) == (among.rewards.p, among.rewards.interval)
    assert only.rewards.p_adjusted <= among.rewards.p_adjusted


# ---- successes


@given(counts=st.tuples(*[st.integers(0, 30)] * 4))
def test_successes_are_compared_by_mcnemar_and_newcombe(counts: tuple[int, int, int, int]) -> None:
    assume(sum(counts) > 0)
    _, only_a, only_b, _ = counts
    cells = [(1, 1), (1, 0), (0, 1), (0, 0)]
    a, b = columns([cell for cell, count in zip(cells, counts, strict=True) for _ in range(count)])
    comparison = compare_paired(np.array(a, dtype=bool), np.array(b, dtype=bool), seed=0)
    assert comparison.n == sum(counts)
    assert comparison.interval == newcombe(*counts)
    assert comparison.difference == pytest.approx((only_b - only_a) / sum(counts))
    exact = scipy.stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert comparison.p == pytest.approx(exact, rel=1e-9)


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


@pytest.mark.parametrize(("rate_a", "rate_b"), [(0.5, 0.7), (0.5, 0.5), (0.05, 0.3), (0.9, 0.95), (0.97, 0.99)])
@pytest.mark.parametrize("together", [0.0, 0.5, 1.0])  # from independent players to the largest overlap of successes
def test_newcombe_covers_the_difference_exactly_enumerated(rate_a: float, rate_b: float, together: float) -> None:
    n = 20
    both = (1 - together) * rate_a * rate_b + together * min(rate_a, rate_b)
    chances = np.clip([both, rate_a - both, rate_b - both, 1 - rate_a - rate_b + both], 0, 1)
    tables = [(i, j, k, n - i - j - k) for i in range(n + 1) for j in range(n + 1 - i) for k in range(n + 1 - i - j)]
    likely = scipy.stats.multinomial.pmf(tables, n, chances / chances.sum())
    intervals = [newcombe(*table) if p > 1e-9 else None for table, p in zip(tables, likely, strict=True)]
    held = [i is not None and i.low - 1e-9 <= rate_b - rate_a <= i.high + 1e-9 for i in intervals]
    assert likely[held].sum() >= 0.93


def test_values_of_0_and_1_are_no_successes_if_other_values_were_possible() -> None:
    a, b = [1.0] * 40 + [0.0] * 160, [1.0] * 38 + [0.0] * 162
    interval, wide = (compare_paired(a, b, seed=0, bounds=bounds).interval for bounds in ((0.0, 1.0), (-2.0, 20.0)))
    assert interval == newcombe(38, 2, 0, 160)
    assert wide
    assert wide.low < -0.2 < 0.2 < wide.high
    a, b = [1.0] * 50, [0.5] * 3 + [1.0] * 47  # means of repeated plays, nearly all equal
    interval = compare_tasks({"lake": (a, b, a, b)}, 0, {"lake": (0.0, 1.0)})[0].success.interval
    assert interval
    assert interval.low < -0.03 < interval.high <= 1


# ---- the sign-flip test


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3], 2 / 8),  # only + + + and − − −
        ([3, 1, -1], 6 / 8),  # sums ±5 once, ±3 twice, ±1 once each
        ([1, 1, 1, 1, -1], 12 / 32),  # ±5 once, ±3 five times each
        ([2, 0, 0], 1.0),
        ([0, 0], 1.0),
        # In floats six times 0.3 summed is more than 6 · 0.3, and 0.1 + 0.2 − 0.1 is more than 2 · 0.1.
        ([0.3] * 6, 2 / 64),
        ([0.1, 0.2, -0.1], 6 / 8),  # sums ±0.4 once, ±0.2 twice, 0 twice
        ([0.1, 0.2, -0.3], 1.0),
    ],
)
def test_sign_flip_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip(differences, seed=0) == pytest.approx(p)


def test_the_sampled_p_agrees_with_all_two_to_the_sixteenth_signs_and_is_never_0() -> None:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=16)))
    for seed in range(4):
        differences = np.random.default_rng(seed).normal(0.4, 1, size=16)
        exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)
        drawn = [sign_flip(differences, seed) for seed in range(5)]
        assert drawn == pytest.approx([exact] * 5, abs=error(exact, 9_999) + 1e-4)
        assert len(set(drawn)) > 1
    assert sign_flip(np.arange(1.0, 101.0), seed=0) == 1 / 10_000


@pytest.mark.parametrize(
    ("n", "repeats"),
    [
        pytest.param(10, 3000, id="enumerated"),
        pytest.param(40, 800, id="drawn"),
        pytest.param(10, 50_000, id="enumerated, more often", marks=pytest.mark.long),
        pytest.param(40, 8_000, id="drawn, more often", marks=pytest.mark.long),
    ],
)
def test_equal_players_are_told_apart_as_rarely_as_promised(
    n: int, repeats: int, record_property: Callable[[str, object], None]
) -> None:
    rng = np.random.default_rng(11)
    boards = rng.geometric(0.3, size=(repeats, n, 1))
    rewards = boards + rng.geometric(0.5, size=(repeats, n, 2)) - 2.0 * (rng.random((repeats, n, 2)) < 0.3)
    p = np.array([sign_flip(row, seed) for seed, row in enumerate(rewards[..., 1] - rewards[..., 0])])
    record_property("rate", round(float(np.mean(p <= 0.05)), 4))
    assert np.mean(p <= 0.05) <= 0.05 + error(0.05, repeats)
    assert np.mean(p <= 0.05) >= 0.03 - error(0.03, repeats)  # ties in coarse rewards make it a little careful


# ---- Holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 · 0.01, then 2 · 0.03 over 1 · 0.04
    assert (holm([0.6, 0.5]), holm([0.2]), holm([])) == ([1.0, 1.0], [0.2], [])


@given(st.lists(probabilities, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_holm_is_the_closed_test_with_bonferroni_in_any_order(p_values: list[float], random: Random) -> None:
    members = range(len(p_values))
    sets = [chosen for size in range(1, len(p_values) + 1) for chosen in itertools.combinations(members, size)]
    bonferroni = {chosen: min(1.0, len(chosen) * min(p_values[i] for i in chosen)) for chosen in sets}
    expected = [max(p for chosen, p in bonferroni.items() if i in chosen) for i in members]
    assert holm(p_values) == pytest.approx(expected)
    shuffled = random.sample(members, len(members))
    assert holm([p_values[i] for i in shuffled]) == [holm(p_values)[i] for i in shuffled]


def test_holm_holds_the_familywise_level() -> None:
    families = np.random.default_rng(14).random((5000, 8))
    families[:, :3] *= 1e-4  # three true differences among five equalities
    wrong = np.mean([min(holm(family.tolist())[3:]) < 0.05 for family in families])
    assert wrong == pytest.approx(1 - (1 - 0.05 / 5) ** 5, abs=error(0.05, 5000))


def test_equal_means_of_other_shapes_get_a_verdict_in_1_of_20_comparisons() -> None:
    """50 small losses without the rare gain that balances them have a small p."""
    rng, shapes = np.random.default_rng(0), [((0.98, -0.02), (0.02, 0.98)), ((0.9, -0.1), (0.1, 0.9)), ((0.75, -1), (0.25, 3))]
    for (often, small), (seldom, large) in shapes:
        found = [
            compare_paired(np.zeros(50), rng.choice([small, large], 50, p=[often, seldom]), seed, bounds=(-5.0, 5.0))
            for seed in range(100)
        ]
        assert sum(one.verdict != "inconclusive" for one in found) <= 100 * (0.05 + error(0.05, 100))


# ---- ranks


def test_the_true_places_are_in_the_ranks_in_19_of_20_tables() -> None:
    rng = np.random.default_rng(0)
    wrong = sum(any(rank != Rank(1, 4) for rank in ranks_of(list(rng.integers(0, 2, (4, 40)).astype(float)))) for _ in range(300))
    assert wrong / 300 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 300)
    sure = ranks_of([np.where(rng.random(200) < rate, 1.0, 0.0) for rate in (0.1, 0.5, 0.9)])
    assert [str(rank) for rank in sure] == ["3", "2", "1"]


def test_the_best_of_33_rows_has_a_rank() -> None:
    # A simulated p is at least 1e-4, and Holm's correction over 528 pairs would raise it above 0.05.
    rng = np.random.default_rng(2)
    crowd = [rng.integers(-2, 3, 60).astype(float) for _ in range(32)]
    assert ranks_of([*crowd, rng.integers(2, 6, 60).astype(float)])[-1] == Rank(1, 1)


# ---- the detectable effect is found 8 times in 10


SIZES, FAMILIES = (50, 200, 500), (1, 8, 40)


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
    both, only_a, only_b = (round(n * share) for share in cells)
    a, b = np.zeros(n), np.zeros(n)
    a[: both + only_a] = 1
    b[:both] = b[both + only_a : both + only_a + only_b] = 1
    found = compare_paired(a, b, seed=0, family=family)
    assert found.detectable is not None
    assert found.correlation is not None
    rate = a.mean() if found.detectable > 0 else 1 - a.mean()
    other = rate + abs(found.detectable)
    together = rate * other + found.correlation * np.sqrt(rate * (1 - rate) * other * (1 - other))
    together = np.clip(together, max(0, rate + other - 1), min(rate, other))
    assert chance_of_a_verdict(n, rate - together, other - together, 0.05 / family) == pytest.approx(0.8, abs=0.005)


def test_pairs_that_can_find_no_difference_say_none() -> None:
    assert compare_paired([0, 1, 0, 1, 0], [0, 0, 1, 1, 0], seed=0).detectable is None  # p is 2 / 32 at best
    assert compare_paired([0, 2, 5, 1, 0], [1, 0, 3, 1, 4], seed=0).detectable is None
    a, b = np.random.default_rng(0).integers(0, 9, (2, 60))
    assert compare_paired(a, b, seed=0, family=499).detectable is not None
    assert compare_paired(a, b, seed=0, family=500).detectable is None  # a sampled p is 1 / 10,000 at best


def test_a_player_that_never_fails_can_only_be_better() -> None:
    found = compare_paired([1] * 50, [1] * 50, seed=0)
    assert found.correlation is None  # taken as 0
    assert found.detectable is not None
    assert found.detectable < 0
    assert chance_of_a_verdict(50, 0.0, -found.detectable, 0.05) == pytest.approx(0.8, abs=0.005)


def test_rare_differences_in_returns_do_not_count_as_a_small_spread() -> None:
    # Two of 50 boards differ: a shift of all 50 differences by 0.05 would always be found, and means nothing.
    found = compare_paired(np.repeat([0.0, -1.0, -2.0], [48, 1, 1]), np.zeros(50), seed=0, bounds=(-21.0, 0.0)).detectable
    assert found is not None
    assert found > 0.15


def share_found(n: int, family: int, repeats: int) -> float:
    """How often the effect that one sample of Snake-like returns promises is found in another sample."""
    rng, found = np.random.default_rng(n), []

    def returns() -> np.ndarray:
        boards = rng.geometric(0.4, size=n)
        return np.asarray((boards[:, None] + rng.geometric(0.5, size=(n, 2)) - 2.0 * (rng.random((n, 2)) < 0.3)).T)

    for seed in range(repeats):
        effect = compare_paired(*returns(), seed, bounds=(-99.0, 99.0), family=family).detectable
        assert effect is not None
        a, b = returns()
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
