"""The paper's loss: hand-computed values, a naive loop over tokens, and properties of its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msgrpo_hub.msgrpo import k3, policy_loss
from tests.test_msgrpo import exactly, numbers


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
    """−[ min(w·A, clip(w, 1−ε_low, 1+ε_up)·A) − β·(r − log r − 1) ] with r = p_ref / p_θ, one token at a time.

    Returns the sum, weighted by n, and its derivative with respect to each log p_θ.
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
@settings(max_examples=200)
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


def test_without_a_reference_there_is_no_kl_and_a_kl_penalty_is_refused() -> None:
    log_p, old, one = exactly([-1.0]), exactly([-1.1]), exactly([1.0])
    terms = policy_loss(log_p, old, None, one, one)
    assert (terms.kl.item(), terms.loss.item()) == (0.0, pytest.approx(-math.exp(0.1)))
    with pytest.raises(ValueError, match=r"beta = 0.5 without reference_log_probs"):
        policy_loss(log_p, old, None, one, one, beta=0.5)


@pytest.mark.parametrize("odd", range(5))
@pytest.mark.parametrize("shape", [(3, 1), (1,), (2,), (), (1, 3)])
def test_shapes_that_differ_are_refused_and_never_broadcast(odd: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected one number per token in each"):
        policy_loss(*(torch.zeros(shape if k == odd else (3,)) for k in range(5)))


@given(tokens=tokens_strategy, cut=st.integers(0, 12))
@settings(max_examples=50)
def test_micro_batches_add_up(tokens: list[Token], cut: int) -> None:
    whole, gradient = naive_loss(tokens, 0.2, 0.2, 0.04)
    parts = [loss_and_gradient(part, 0.2, 0.2, 0.04) for part in (tokens[:cut], tokens[cut:]) if part]
    assert sum(loss for loss, _ in parts) == pytest.approx(whole, abs=1e-9)
    assert [slope for _, slopes in parts for slope in slopes] == pytest.approx(gradient, abs=1e-9)


vocabularies = st.integers(2, 8).flatmap(lambda size: st.tuples(*(st.lists(numbers, min_size=size, max_size=size),) * 2))


@given(logits=vocabularies)
def test_k3_is_never_negative_and_its_mean_is_the_exact_kl(logits: tuple[list[float], list[float]]) -> None:
    log_p, log_q = (torch.log_softmax(exactly(values), 0) for values in logits)
    estimates = k3(log_p, log_q)
    exact = sum(math.exp(p) * (p - q) for p, q in zip(log_p.tolist(), log_q.tolist(), strict=True))
    assert estimates.min().item() >= -1e-15
    assert (log_p.exp() * estimates).sum().item() == pytest.approx(exact, abs=1e-9)
