"""The paper's formulas up to the loss: hand-computed values and independent oracles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msgrpo_hub.episode import Completion, Episode, Group, ReplyStatus, Step
from msgrpo_hub.msgrpo import (
    ADVANTAGE_SCALES,
    LOSS_NORMALISATIONS,
    SAMPLERS,
    CreditContext,
    SelectedEpisode,
    composite_return,
    group_advantages,
    sample_by_absolute_advantage,
    sample_max_variance,
    select,
    select_episodes,
    token_weights,
    whole_episode,
)
from tests.enumeration import subset_probabilities

numbers = st.floats(-5, 5, allow_subnormal=False)
returns_strategy = st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=30).filter(lambda c: len(set(c)) > 1)


def exactly(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def step_of(reward: float, status: ReplyStatus = "ok") -> Step:
    reply = Completion(text="", prompt_ids=(1,), token_ids=(2,), log_probs=(0.0,))
    action = "Up" if status == "ok" else None
    return Step(observation="", completion=reply, action=action, status=status, legal=True, reward=reward)


def episode_of(*steps: Step, member: int = 0) -> Episode:
    return Episode(game_id="g", seed=0, member=member, steps=steps, terminated=True, truncated=False, success=False)


def test_the_composite_return_subtracts_the_penalty_for_each_reply_without_an_action() -> None:
    episode = episode_of(step_of(1.0), step_of(0.0, "unreadable"), step_of(0.5, "truncated_reply"), step_of(-2.0))
    assert composite_return(episode, 1.0) == -2.5  # 1 + 0 + 0.5 − 2, minus two penalties
    assert composite_return(episode, 0.25) == -1.0
    assert composite_return(episode, 0.0) == -0.5


def test_advantages_divide_by_the_population_deviation_plus_1e_8() -> None:
    # C = 3, 0, 0, 1: mean 1, squares 4 + 1 + 1 + 0, over 4 (not 3): std = √1.5.
    expected = [2 / (math.sqrt(1.5) + 1e-8), -1 / (math.sqrt(1.5) + 1e-8), -1 / (math.sqrt(1.5) + 1e-8), 0.0]
    assert group_advantages(exactly([3, 0, 0, 1])).tolist() == pytest.approx(expected, rel=1e-14)
    # C = ±1e-7: std = 1e-7, so the 1e-8 counts: 1e-7 / 1.1e-7.
    assert group_advantages(exactly([1e-7, -1e-7])).tolist() == pytest.approx([1 / 1.1, -1 / 1.1], rel=1e-9)


@given(returns=returns_strategy, shift=st.integers(-1000, 1000), scale=st.floats(0.1, 100))
def test_advantages_have_mean_0_and_variance_1_and_ignore_a_shift_and_a_positive_scale(
    returns: list[float], shift: int, scale: float
) -> None:
    advantages = group_advantages(exactly(returns))
    assert advantages.mean().item() == pytest.approx(0, abs=1e-9)
    assert advantages.square().mean().item() == pytest.approx(1, abs=1e-6)
    moved = group_advantages(exactly([scale * c + shift for c in returns]))
    assert moved.tolist() == pytest.approx(advantages.tolist(), abs=1e-5)


def mean_absolute(centred: Tensor) -> Tensor:
    return centred.abs().mean()


@given(value=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 100), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_equal_returns_give_advantages_of_exactly_0_whatever_the_scale(value: float, size: int, dtype: torch.dtype) -> None:
    for scale in (ADVANTAGE_SCALES["std"], mean_absolute):
        assert group_advantages(torch.full((size,), value, dtype=dtype), scale).tolist() == [0.0] * size
    assert group_advantages(torch.tensor([1.0, -1.0]), mean_absolute).tolist() == [1.0, -1.0]


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
    drawn = [tuple(SAMPLERS["uniform"](exactly([9, 0, 0, -9, 0]), 2, generator).tolist()) for _ in range(n)]
    counts = [drawn.count(subset) for subset in itertools.combinations(range(5), 2)]
    assert sum(counts) == n
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_top_takes_the_largest_absolute_advantages_and_of_equals_the_first() -> None:
    generator = torch.Generator()
    assert SAMPLERS["top"](exactly([0.5, -2.0, 1.0, 0.0]), 2, generator).tolist() == [1, 2]
    assert SAMPLERS["top"](exactly([1.0, -1.0, 1.0, -1.0]), 3, generator).tolist() == [0, 1, 2]


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


def weights_of(name: str, lengths: list[list[int]]) -> list[list[float]]:
    """The weight of each token, for episodes of steps with replies of these lengths."""
    replies = [[replace(step_of(0.0).completion, token_ids=(1,) * length) for length in steps] for steps in lengths]
    episodes = [episode_of(*(replace(step_of(0.0), completion=reply) for reply in of)) for of in replies]
    return token_weights([SelectedEpisode(episode, ()) for episode in episodes], LOSS_NORMALISATIONS[name])


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("token-mean", [[1 / 8, 1 / 8], [1 / 8]]),
        ("step-mean", [[1 / 3, 1 / 9], [1 / 12]]),
        ("episode-mean", [[1 / 8, 1 / 8], [1 / 8]]),
    ],
)
def test_normalising_weights_by_hand(name: str, weights: list[list[float]]) -> None:
    """An episode of two steps with replies of 1 and 3 tokens, and an episode of one step with 4."""
    assert [pytest.approx(steps) for steps in weights] == weights_of(name, [[1, 3], [4]])


@pytest.mark.parametrize("name", LOSS_NORMALISATIONS)
@given(lengths=st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_weights_of_all_tokens_add_up_to_one(name: str, lengths: list[list[int]]) -> None:
    weights = weights_of(name, lengths)
    total = sum(w * n for ws, ns in zip(weights, lengths, strict=True) for w, n in zip(ws, ns, strict=True))
    assert total == pytest.approx(1.0, rel=1e-12)


def group_of(*rewards: Sequence[float], seed: int = 0) -> Group:
    """One episode per sequence of rewards."""
    episodes = [episode_of(*map(step_of, of_episode), member=member) for member, of_episode in enumerate(rewards)]
    return Group(game_id="g", seed=seed, episodes=tuple(episodes))


def test_advantages_stay_per_group_and_a_group_without_variance_is_left_out() -> None:
    groups = [group_of([1], [0], [0], [1]), group_of([5], [5], [5], [5]), group_of([100], [0], [0], [0])]
    plan = select(groups, whole_episode, SAMPLERS["top"], CreditContext(), 2, seed=0)
    third = 3**0.5  # C = 100, 0, 0, 0: mean 25, std 25·√3, so A = √3 and −1/√3
    expected = [[1, -1, -1, 1], [0, 0, 0, 0], pytest.approx([third, -1 / third, -1 / third, -1 / third])]
    assert [of_group.tolist() for of_group in plan.advantages] == expected
    assert [item.episode for item in plan.selected] == [*groups[0].episodes[:2], *groups[2].episodes[:2]]
    assert [item.advantages for item in plan.selected] == [(1,), (-1,), pytest.approx((third,)), pytest.approx((-1 / third,))]


def test_a_group_is_left_out_only_without_any_step_advantage() -> None:
    groups = [group_of([1], [1]), group_of([1], [1])]
    steps = [[torch.tensor([0.0]), torch.tensor([0.5])], [torch.tensor([0.0]), torch.tensor([0.0])]]
    selected = select_episodes(groups, [torch.zeros(2), torch.zeros(2)], steps, 2, SAMPLERS["top"], torch.Generator())
    first, second = groups[0].episodes
    assert [(item.episode, item.advantages) for item in selected] == [(first, (0.0,)), (second, (0.5,))]
