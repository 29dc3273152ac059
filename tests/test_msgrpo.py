"""The paper's formulas: numbers worked out by hand, and oracles that share no code with what they check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msgrpo_hub.episode import Completion, Episode, Step
from msgrpo_hub.msgrpo import (
    LOSS_NORMALISATIONS,
    SAMPLERS,
    composite_return,
    episode_mean,
    group_advantages,
    sample_by_absolute_advantage,
    sample_max_variance,
    sample_top,
    sample_uniform,
    step_mean,
    token_mean,
)
from tests.enumeration import subset_probabilities

numbers = st.floats(-5, 5, allow_subnormal=False)
returns_strategy = st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=30).filter(lambda c: len(set(c)) > 1)


def exactly(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ---- returns and advantages


def test_the_composite_return_takes_the_penalty_for_each_reply_without_an_action() -> None:
    steps = tuple(
        Step(observation="", completion=Completion(text=""), action=action, status=status, legal=False, reward=reward)
        for action, status, reward in (
            ("Up", "ok", 1.0),
            (None, "unreadable", 0.0),
            (None, "truncated_reply", 0.5),
            ("Left", "ok", -2.0),
        )
    )
    episode = Episode(game_id="g", seed=0, member=0, steps=steps, terminated=True, truncated=False, success=False)
    assert composite_return(episode, 1.0) == -2.5  # 1 + 0 + 0.5 − 2, less two penalties
    assert composite_return(episode, 0.25) == -1.0
    assert composite_return(episode, 0.0) == -0.5


def test_advantages_divide_by_the_population_deviation_plus_1e_8() -> None:
    # C = 3, 0, 0, 1: mean 1, squares 4 + 1 + 1 + 0, over 4 (not 3): std = √1.5.
    expected = [2 / (math.sqrt(1.5) + 1e-8), -1 / (math.sqrt(1.5) + 1e-8), -1 / (math.sqrt(1.5) + 1e-8), 0.0]
    assert group_advantages(exactly([3, 0, 0, 1])).tolist() == pytest.approx(expected, rel=1e-14)
    # C = ±1e-7: std = 1e-7, so the 1e-8 counts: 1e-7 / 1.1e-7.
    assert group_advantages(exactly([1e-7, -1e-7])).tolist() == pytest.approx([1 / 1.1, -1 / 1.1], rel=1e-9)


@given(returns=returns_strategy)
def test_advantages_have_mean_zero_and_variance_one(returns: list[float]) -> None:
    advantages = group_advantages(exactly(returns))
    assert advantages.mean().item() == pytest.approx(0, abs=1e-9)
    assert advantages.square().mean().item() == pytest.approx(1, abs=1e-6)


def test_equal_returns_have_no_advantage_whatever_the_scale() -> None:
    def mean_absolute(centred: torch.Tensor) -> torch.Tensor:
        return centred.abs().mean()

    assert group_advantages(torch.ones(3), mean_absolute).tolist() == [0.0, 0.0, 0.0]
    assert group_advantages(torch.tensor([1.0, -1.0]), mean_absolute).tolist() == [1.0, -1.0]


@given(returns=returns_strategy, shift=st.integers(-1000, 1000), scale=st.floats(0.1, 100))
def test_advantages_ignore_a_shift_and_a_positive_scale(returns: list[float], shift: int, scale: float) -> None:
    moved = group_advantages(exactly([scale * c + shift for c in returns]))
    assert moved.tolist() == pytest.approx(group_advantages(exactly(returns)).tolist(), abs=1e-5)


@given(value=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 100), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_equal_returns_give_advantages_of_exactly_zero(value: float, size: int, dtype: torch.dtype) -> None:
    assert group_advantages(torch.full((size,), value, dtype=dtype)).tolist() == [0.0] * size


# ---- samplers


@pytest.mark.parametrize(
    ("advantages", "count", "tau"),
    [
        ([1.9, -0.6, -0.6, -0.9, 0.2], 2, 1.0),
        ([1.9, -0.6, -0.6, -0.9, 0.2], 3, 1.0),
        ([2.0, -1.0, 0.0, 0.0, -1.0], 2, 0.5),
        ([2.0, -1.0, 0.0, 0.0, -1.0], 3, 4.0),
    ],
)
def test_aaw_draws_each_subset_as_often_as_successive_draws_do(advantages: list[float], count: int, tau: float) -> None:
    weights = [math.exp(abs(a) / tau) for a in advantages]
    expected = subset_probabilities([w / sum(weights) for w in weights], count)
    generator, n = torch.Generator().manual_seed(count), 20_000
    drawn = [tuple(sample_by_absolute_advantage(exactly(advantages), count, generator, tau).tolist()) for _ in range(n)]
    assert set(drawn) <= set(expected)
    test = scipy.stats.chisquare([drawn.count(subset) for subset in expected], [n * p for p in expected.values()])
    assert test.pvalue > 1e-3
    for j in range(len(advantages)):  # the inclusion frequencies, within four standard errors
        inclusion = sum(p for subset, p in expected.items() if j in subset)
        frequency = sum(j in subset for subset in drawn) / n
        assert frequency == pytest.approx(inclusion, abs=4 * math.sqrt(inclusion * (1 - inclusion) / n))


def test_aaw_tells_advantages_of_any_size_apart() -> None:
    advantages = exactly([0.0, -1000.0, 2000.0, 5000.0, 1.0])  # all but the largest have a probability below the smallest number
    drawn = [sample_by_absolute_advantage(advantages, 3, torch.Generator().manual_seed(seed)).tolist() for seed in range(100)]
    assert drawn == [[1, 2, 3]] * 100


@pytest.mark.parametrize("name", SAMPLERS)
@given(advantages=st.lists(numbers, min_size=1, max_size=12), data=st.data())
@settings(max_examples=50)
def test_every_sampler_draws_that_many_ascending_and_none_twice(name: str, advantages: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(advantages)))
    drawn = SAMPLERS[name](exactly(advantages), count, torch.Generator().manual_seed(0)).tolist()
    assert len(drawn) == count
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(len(advantages)))


def test_uniform_ignores_the_advantages() -> None:
    generator, n = torch.Generator().manual_seed(0), 10_000
    drawn = [tuple(sample_uniform(exactly([9, 0, 0, -9, 0]), 2, generator).tolist()) for _ in range(n)]
    counts = [drawn.count(subset) for subset in itertools.combinations(range(5), 2)]
    assert sum(counts) == n
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_top_takes_the_largest_absolute_advantages_and_of_equals_the_first() -> None:
    generator = torch.Generator()
    assert sample_top(exactly([0.5, -2.0, 1.0, 0.0]), 2, generator).tolist() == [1, 2]
    assert sample_top(exactly([1.0, -1.0, 1.0, -1.0]), 3, generator).tolist() == [0, 1, 2]


@given(advantages=st.lists(numbers, min_size=1, max_size=9), data=st.data())
@settings(max_examples=150)
def test_max_variance_is_the_best_of_all_subsets(advantages: list[float], data: st.DataObject) -> None:
    def variance(chosen: Sequence[int]) -> float:
        mean = sum(advantages[i] for i in chosen) / len(chosen)
        return sum((advantages[i] - mean) ** 2 for i in chosen) / len(chosen)

    count = data.draw(st.integers(1, len(advantages)))
    best = max(variance(subset) for subset in itertools.combinations(range(len(advantages)), count))
    chosen = sample_max_variance(exactly(advantages), count, torch.Generator()).tolist()
    assert variance(chosen) == pytest.approx(best, abs=1e-9)


# ---- normalisations

LENGTHS = [[1, 3], [4]]
"""Two episodes: one of two steps with replies of 1 and 3 tokens, one of one step with 4."""


@pytest.mark.parametrize(
    ("normalisation", "weights"),
    [
        (token_mean, [[1 / 8, 1 / 8], [1 / 8]]),
        (step_mean, [[1 / 3, 1 / 9], [1 / 12]]),
        (episode_mean, [[1 / 8, 1 / 8], [1 / 8]]),
    ],
)
def test_normalising_weights_by_hand(normalisation: Callable[..., list[list[float]]], weights: list[list[float]]) -> None:
    assert [pytest.approx(steps) for steps in weights] == normalisation(LENGTHS)


@pytest.mark.parametrize("name", LOSS_NORMALISATIONS)
@given(lengths=st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_weights_of_all_tokens_add_up_to_one(name: str, lengths: list[list[int]]) -> None:
    weights = LOSS_NORMALISATIONS[name](lengths)
    total = sum(w * n for ws, ns in zip(weights, lengths, strict=True) for w, n in zip(ws, ns, strict=True))
    assert total == pytest.approx(1.0, rel=1e-12)
