"""Paired successes: McNemar's test and Newcombe's interval."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.paired import compare_paired, newcombe, sign_flip
from tests.evaluation.pairs import columns


@given(only_a=st.integers(0, 400), only_b=st.integers(0, 400))
def test_p_of_successes_is_the_exact_binomial_test(only_a: int, only_b: int) -> None:
    assume(only_a + only_b > 0)
    expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue
    assert sign_flip([-1.0] * only_a + [1.0] * only_b, seed=0) == pytest.approx(expected, rel=1e-9)


@given(counts=st.tuples(*[st.integers(0, 30)] * 4))
def test_successes_are_compared_by_mcnemar_and_newcombe(counts: tuple[int, int, int, int]) -> None:
    assume(sum(counts) > 0)
    cells = [(1, 1), (1, 0), (0, 1), (0, 0)]
    a, b = columns([cell for cell, count in zip(cells, counts, strict=True) for _ in range(count)])
    comparison = compare_paired(np.array(a, dtype=bool), np.array(b, dtype=bool), seed=0)
    assert comparison.n == sum(counts)
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


@pytest.mark.parametrize("n", [20])
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


def test_returns_that_could_have_been_others_are_no_successes_even_if_all_were_0_or_1() -> None:
    a, b = [1.0] * 40 + [0.0] * 160, [1.0] * 38 + [0.0] * 162
    interval, wide = (compare_paired(a, b, seed=0, bounds=bounds).interval for bounds in ((0.0, 1.0), (-2.0, 20.0)))
    assert interval == newcombe(38, 2, 0, 160)
    assert wide
    assert wide.low < -0.2
    assert wide.high > 0.2
