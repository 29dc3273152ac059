"""The paper's formulas: numbers worked out by hand, and oracles that share no code with what they check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
    Sampler,
    composite_return,
    episode_mean,
    group_advantages,
    k3,
    policy_loss,
    sample_by_absolute_advantage,
    sample_max_variance,
    sample_top,
    sample_uniform,
    step_mean,
    token_mean,
)

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
@settings(deadline=None)
def test_advantages_have_mean_zero_and_variance_one(returns: list[float]) -> None:
    advantages = group_advantages(exactly(returns))
    assert advantages.mean().item() == pytest.approx(0, abs=1e-9)
    assert advantages.square().mean().item() == pytest.approx(1, abs=1e-6)


@given(returns=returns_strategy, shift=st.integers(-1000, 1000), scale=st.floats(0.1, 100))
@settings(deadline=None)
def test_advantages_ignore_a_shift_and_a_positive_scale(returns: list[float], shift: int, scale: float) -> None:
    moved = group_advantages(exactly([scale * c + shift for c in returns]))
    assert moved.tolist() == pytest.approx(group_advantages(exactly(returns)).tolist(), abs=1e-5)


@given(value=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 100), dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None)
def test_equal_returns_give_advantages_of_exactly_zero(value: float, size: int, dtype: torch.dtype) -> None:
    assert group_advantages(torch.full((size,), value, dtype=dtype)).tolist() == [0.0] * size


def test_whole_numbers_as_returns_give_the_same_advantages() -> None:
    expected = group_advantages(torch.tensor([3.0, 0.0, 0.0, 1.0])).tolist()
    assert group_advantages(torch.tensor([3, 0, 0, 1])).tolist() == pytest.approx(expected)


# ---- samplers


def subset_probabilities(p: Sequence[float], count: int) -> dict[tuple[int, ...], float]:
    """Successive draws without replacement, enumerated: every order of every subset, renormalised after each draw."""
    found: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(p)), count):
        chance, left = 1.0, 1.0
        for index in order:
            chance, left = chance * p[index] / left, left - p[index]
        key = tuple(sorted(order))
        found[key] = found.get(key, 0.0) + chance
    return found


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


def test_aaw_takes_tau_to_be_one_unless_told() -> None:
    def thousand(**options: float) -> list[list[int]]:
        generator = torch.Generator().manual_seed(3)
        return [sample_by_absolute_advantage(exactly([2, -1, 0, 0.5]), 2, generator, **options).tolist() for _ in range(1000)]

    assert thousand() == thousand(tau=1.0) != thousand(tau=0.5)


@pytest.mark.parametrize("name", SAMPLERS)
@given(advantages=st.lists(numbers, min_size=1, max_size=12), data=st.data())
@settings(max_examples=50, deadline=None)
def test_every_sampler_draws_that_many_ascending_and_none_twice(name: str, advantages: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(advantages)))
    drawn = SAMPLERS[name](exactly(advantages), count, torch.Generator().manual_seed(0)).tolist()
    assert len(drawn) == count
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(len(advantages)))


@pytest.mark.parametrize("sampler", [sample_by_absolute_advantage, sample_uniform])
def test_a_draw_is_a_function_of_its_generator(sampler: Sampler) -> None:
    def draws(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [sampler(torch.linspace(-1, 1, 20), 5, generator).tolist() for _ in range(5)]

    assert draws(1) == draws(1) != draws(2)


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
@settings(max_examples=150, deadline=None)
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


def test_an_episode_counts_the_same_whatever_its_length() -> None:
    assert episode_mean([[2, 2], [1]]) == [[1 / 8, 1 / 8], [1 / 2]]


@pytest.mark.parametrize("name", LOSS_NORMALISATIONS)
@given(lengths=st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=8), min_size=1, max_size=8))
@settings(deadline=None)
def test_the_weights_of_all_tokens_add_up_to_one(name: str, lengths: list[list[int]]) -> None:
    weights = LOSS_NORMALISATIONS[name](lengths)
    total = sum(w * n for ws, ns in zip(weights, lengths, strict=True) for w, n in zip(ws, ns, strict=True))
    assert total == pytest.approx(1.0, rel=1e-12)


# ---- the loss


class Token(NamedTuple):
    """One generated token: its three log-probabilities, the advantage of its episode, and its normalising weight."""

    log_p: float
    old: float
    reference: float
    advantage: float
    n: float


log_probabilities = st.floats(-3, -0.01)
tokens_strategy = st.lists(
    st.builds(Token, log_probabilities, log_probabilities, log_probabilities, st.floats(-3, 3), st.floats(0.01, 1)),
    min_size=1,
    max_size=12,
)
epsilons = st.floats(0.05, 0.6)


def column(tokens: Sequence[Token], name: str) -> Tensor:
    return exactly([getattr(token, name) for token in tokens])


def naive_loss(tokens: Sequence[Token], low: float, up: float, beta: float) -> tuple[float, list[float]]:
    """SPEC: −[ min(w·A, clip(w, 1−ε_low, 1+ε_up)·A) − β·(r − log r − 1) ] with r = p_ref / p_θ, one token at a time.

    Returns the sum, weighted by n, and its derivative by each log p_θ.
    """
    total, slopes = 0.0, []
    for t in tokens:
        w, r = math.exp(t.log_p) / math.exp(t.old), math.exp(t.reference) / math.exp(t.log_p)
        plain, clipped = w * t.advantage, min(max(w, 1 - low), 1 + up) * t.advantage
        total += t.n * -(min(plain, clipped) - beta * (r - math.log(r) - 1))
        slope = w * t.advantage if plain <= clipped else 0.0  # dw/dlog p = w; the clipped branch is flat
        slopes.append(t.n * -(slope - beta * (1 - r)))  # d(r − log r − 1)/dlog p = −r + 1
    return total, slopes


def loss_and_gradient(tokens: Sequence[Token], low: float, up: float, beta: float) -> tuple[float, list[float]]:
    log_p = exactly([t.log_p for t in tokens]).requires_grad_()
    others = (column(tokens, name) for name in ("old", "reference", "advantage", "n"))
    terms = policy_loss(log_p, *others, epsilon_low=low, epsilon_up=up, beta=beta)
    (gradient,) = torch.autograd.grad(terms.loss, log_p)
    return terms.loss.item(), gradient.tolist()


@given(tokens=tokens_strategy, low=epsilons, up=epsilons, beta=st.sampled_from([0.0, 0.04, 1.0]))
@settings(max_examples=200, deadline=None)
def test_loss_and_gradient_are_those_of_a_naive_loop_over_tokens(tokens: list[Token], low: float, up: float, beta: float) -> None:
    loss, gradient = loss_and_gradient(tokens, low, up, beta)
    expected, slopes = naive_loss(tokens, low, up, beta)
    assert loss == pytest.approx(expected, abs=1e-9)
    assert gradient == pytest.approx(slopes, abs=1e-9)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # stopped: already raised by more than ε_up = 0.2
        (0.5, 2.0, -1.0, -1.0),  # not stopped from below
        (0.9, -2.0, 1.8, 1.8),
        (0.5, -2.0, 1.4, 0.0),  # stopped: already lowered by more than ε_low = 0.3
        (1.5, -2.0, 3.0, 3.0),  # not stopped from above
    ],
)
def test_the_clip_by_hand(ratio: float, advantage: float, loss: float, slope: float) -> None:
    token = Token(math.log(0.3 * ratio), math.log(0.3), math.log(0.3), advantage, 1.0)
    value, (gradient,) = loss_and_gradient([token], 0.3, 0.2, 0.0)
    assert (value, gradient) == (pytest.approx(loss), pytest.approx(slope))


def test_kl_and_the_clipped_share_by_hand() -> None:
    # Ratios 1.5, 0.5, 1, 1.5 and 0.5; the last two have no advantage, so there is nothing to stop.
    tokens = [Token(math.log(0.3 * w), math.log(0.3), math.log(0.6), a, n) for w, a, n in
              ((1.5, 1.0, 0.1), (0.5, -1.0, 0.2), (1.0, 1.0, 0.3), (1.5, 0.0, 0.4), (0.5, 0.0, 0.5))]  # fmt: skip
    terms = policy_loss(*(column(tokens, name) for name in Token._fields), beta=0.5)
    kl = sum(t.n * (r - math.log(r) - 1) for t, r in zip(tokens, (4 / 3, 4, 2, 4 / 3, 4), strict=True))
    assert terms.clipped.item() == pytest.approx(0.3)
    assert terms.kl.item() == pytest.approx(kl)
    assert terms.loss.item() == pytest.approx(0.5 * kl - (0.1 * 1.2 - 0.2 * 0.8 + 0.3))


def test_without_a_reference_there_is_no_kl() -> None:
    token = Token(-1.0, -1.1, -5.0, 1.0, 1.0)
    log_p, old = exactly([token.log_p]), exactly([token.old])
    terms = policy_loss(log_p, old, None, exactly([1.0]), exactly([1.0]))
    assert (terms.kl.item(), terms.loss.item()) == (0.0, pytest.approx(-math.exp(0.1)))


def test_a_kl_penalty_without_a_reference_is_refused() -> None:
    with pytest.raises(ValueError, match=r"beta = 0.5 without reference_log_probs"):
        policy_loss(exactly([-1.0]), exactly([-1.0]), None, exactly([1.0]), exactly([1.0]), beta=0.5)


@pytest.mark.parametrize("odd", range(5))
@pytest.mark.parametrize("shape", [(3, 1), (1,), (2,), (), (1, 3)])
def test_shapes_that_differ_are_refused_and_never_broadcast(odd: int, shape: tuple[int, ...]) -> None:
    given = [torch.zeros(3) for _ in range(5)]
    given[odd] = torch.zeros(shape)
    with pytest.raises(ValueError, match="expected one number per token in each"):
        policy_loss(*given)


@given(
    tokens=tokens_strategy,
    copies=st.lists(st.tuples(st.integers(0, 11), st.floats(-3, 3), st.floats(0.01, 1)), max_size=12),
    low=epsilons,
    up=epsilons,
)
@settings(max_examples=100, deadline=None)
def test_tokens_with_one_context_merge_into_one_entry_for_each_sign(
    tokens: list[Token], copies: list[tuple[int, float, float]], low: float, up: float
) -> None:
    """Each copy has the context of a token and, from another episode, its own advantage and weight."""
    unmerged = [*tokens, *(tokens[i % len(tokens)]._replace(advantage=a, n=n) for i, a, n in copies)]
    owners = [*range(len(tokens)), *(i % len(tokens) for i, _, _ in copies)]
    merged, of = [], []
    for i, token in enumerate(tokens):
        for sign in (1, -1):
            same = [t for t, owner in zip(unmerged, owners, strict=True) if owner == i and (t.advantage >= 0) == (sign > 0)]
            if n := sum(t.n for t in same):
                merged.append(token._replace(advantage=sum(t.n * t.advantage for t in same) / n, n=n))
                of.append(i)
    loss, slopes = naive_loss(unmerged, low, up, 0.1)
    ours, gradient = loss_and_gradient(merged, low, up, 0.1)
    assert ours == pytest.approx(loss, abs=1e-9)

    def added(values: Sequence[float], which: Sequence[int]) -> list[float]:
        return [sum(value for value, owner in zip(values, which, strict=True) if owner == i) for i in range(len(tokens))]

    assert added(gradient, of) == pytest.approx(added(slopes, owners), abs=1e-9)


@given(tokens=tokens_strategy, cut=st.integers(0, 12))
@settings(max_examples=50, deadline=None)
def test_micro_batches_add_up(tokens: list[Token], cut: int) -> None:
    whole, gradient = loss_and_gradient(tokens, 0.2, 0.2, 0.04)
    parts = [loss_and_gradient(part, 0.2, 0.2, 0.04) for part in (tokens[:cut], tokens[cut:]) if part]
    assert sum(loss for loss, _ in parts) == pytest.approx(whole, abs=1e-12)
    assert [slope for _, slopes in parts for slope in slopes] == pytest.approx(gradient, abs=1e-15)


# ---- what the gradient does


vocabularies = st.integers(2, 8).flatmap(lambda size: st.tuples(*(st.lists(numbers, min_size=size, max_size=size),) * 2))


@given(logits=vocabularies)
@settings(deadline=None)
def test_k3_is_never_negative_and_its_mean_is_the_exact_kl(logits: tuple[list[float], list[float]]) -> None:
    log_p, log_q = (torch.log_softmax(exactly(values), 0) for values in logits)
    estimates = k3(log_p, log_q)
    exact = sum(math.exp(p) * (p - q) for p, q in zip(log_p.tolist(), log_q.tolist(), strict=True))
    assert estimates.min().item() >= -1e-15
    assert (log_p.exp() * estimates).sum().item() == pytest.approx(exact, abs=1e-9)


def test_k3_of_equal_distributions_is_zero_and_so_is_its_slope() -> None:
    log_p = exactly([-0.5, -2.0]).requires_grad_()
    (slope,) = torch.autograd.grad(k3(log_p, log_p.detach()).sum(), log_p)
    assert k3(log_p, log_p.detach()).tolist() == slope.tolist() == [0.0, 0.0]


def test_a_step_raises_the_good_action_and_lowers_the_bad_one() -> None:
    logits = exactly([0.3, -0.2, 0.1]).requires_grad_()
    log_p = torch.log_softmax(logits, 0)[:2]  # the first action had A = 1, the second A = −1, the third was not drawn
    policy_loss(log_p, log_p.detach(), None, exactly([1.0, -1.0]), exactly([0.5, 0.5])).loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    before, after = torch.softmax(logits, 0), torch.softmax(logits - 0.1 * logits.grad, 0)
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_the_kl_penalty_alone_pulls_towards_the_reference() -> None:
    logits, reference = exactly([1.0, -1.0, 0.5]).requires_grad_(), torch.log_softmax(exactly([0.0, 0.0, 0.0]), 0)
    log_p = torch.log_softmax(logits, 0)
    nothing = torch.zeros(3, dtype=torch.float64)
    weights = log_p.detach().exp()  # every token as often as it is sampled
    policy_loss(log_p, log_p.detach(), reference, nothing, weights, beta=1.0).loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None

    def kl(values: Tensor) -> float:
        p = torch.log_softmax(values.detach(), 0)
        return (p.exp() * (p - reference)).sum().item()

    assert kl(logits - 0.1 * logits.grad) < kl(logits)


@given(
    logits=st.lists(numbers, min_size=3, max_size=6),
    drawn=st.lists(st.tuples(st.integers(0, 2), numbers, st.floats(0.01, 1)), min_size=1, max_size=8),
)
@settings(deadline=None)
def test_at_ratio_one_the_gradient_is_that_of_reinforce(logits: list[float], drawn: list[tuple[int, float, float]]) -> None:
    theta = exactly(logits).requires_grad_()
    log_p = torch.log_softmax(theta, 0)[[action for action, _, _ in drawn]]
    advantages, weights = exactly([a for _, a, _ in drawn]), exactly([n for *_, n in drawn])
    (gradient,) = torch.autograd.grad(policy_loss(log_p, log_p.detach(), None, advantages, weights).loss, theta)
    p = torch.softmax(theta.detach(), 0).tolist()
    expected = [0.0] * len(logits)  # −Σ n·A·∇log p(action), where ∂log p(a)/∂θ_i = [i = a] − p_i
    for action, advantage, n in drawn:
        for i, chance in enumerate(p):
            expected[i] -= n * advantage * ((i == action) - chance)
    assert gradient.tolist() == pytest.approx(expected, abs=1e-9)
