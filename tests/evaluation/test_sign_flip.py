"""The p-value of paired differences: by hand, against scipy, and as rare as promised."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from msgrpo_hub.evaluation.paired import sign_flip
from tests.evaluation.pairs import error

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
    """Both draw from one skewed distribution on boards that matter: p ≤ 0.05 in 5 % of experiments, no more."""
    rng = np.random.default_rng(11)
    boards = rng.geometric(0.3, size=(repeats, n, 1))
    rewards = boards + rng.geometric(0.5, size=(repeats, n, 2)) - 2.0 * (rng.random((repeats, n, 2)) < 0.3)
    p = np.array([sign_flip(row, seed) for seed, row in enumerate(rewards[..., 1] - rewards[..., 0])])
    record_property("rate", round(float(np.mean(p <= 0.05)), 4))
    assert np.mean(p <= 0.05) <= 0.05 + error(0.05, repeats)
    assert np.mean(p <= 0.05) >= 0.03 - error(0.03, repeats)  # ties in coarse rewards make it a little careful
