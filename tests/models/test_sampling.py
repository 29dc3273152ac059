"""Tokens are sampled with the frequencies of the distribution, restricted by top-k and top-p; near draws are counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from msgrpo_hub.episode import NEAR
from msgrpo_hub.models import sampling
from msgrpo_hub.models.sampling import draw_tokens


def zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.long)


def grid_of_uniforms(count: int) -> list[float]:
    return [(i + 0.5) / count for i in range(count)]


def test_the_most_likely_token_at_temperature_zero_is_scored_at_temperature_one() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    tokens, log_probs, entropies, _ = draw_tokens(logits, torch.tensor([1, 0, 1]), [0.99, 0.0, 0.5], 0.0, 2, 0.1)
    assert tokens.tolist() == [0, 1, 0]
    assert torch.equal(log_probs, torch.log_softmax(logits, -1)[[1, 0, 1], [0, 1, 0]])  # no top-k and top-p
    assert entropies[0] == entropies[2] != entropies[1]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rows_that_are_drawn_from_in_parts_give_each_sample_its_own_token(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against draws from all rows at once; includes a row without samples, and samples in no order."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 3, (7, 50)), dtype=torch.float32)
    rows, uniforms = torch.tensor([6, 0, 3, 3, 5, 0, 6, 1, 4, 6]), rng.random(10).tolist()
    at_once = draw_tokens(logits, rows, uniforms, temperature)
    monkeypatch.setattr(sampling, "AT_ONCE", 2 * 50)
    in_parts = draw_tokens(logits, rows, uniforms, temperature)
    for whole, parted in zip(at_once, in_parts, strict=True):
        assert torch.allclose(whole, parted, rtol=1e-6, atol=0)
    assert torch.equal(at_once[0], in_parts[0])
    assert len(set(at_once[0].tolist())) > 4


def test_a_distribution_over_one_hundred_thousand_tokens_is_sampled_to_its_last_token() -> None:
    """The samples are even, up to the last token: adding many small numbers loses no probability."""
    n = 100_000
    tokens, _, _, _ = draw_tokens(torch.zeros(1, n), zeros(64), grid_of_uniforms(64), 1.0)
    assert tokens.tolist() == pytest.approx([(i + 0.5) * n / 64 for i in range(64)], abs=1)


@given(
    vocabulary=st.sampled_from([1, 127, 128, 129, 300, 1000]),
    unlikely=st.floats(0, 0.99),
    spread=st.floats(0, 30),
    seed=st.integers(0, 99),
)
@example(vocabulary=128, unlikely=0.5, spread=16.625, seed=18)  # a sum of 1 loses the probability above its token
@settings(max_examples=100)
def test_a_token_is_the_inverse_of_the_whole_distribution(vocabulary: int, unlikely: float, spread: float, seed: int) -> None:
    """Against exact sums: the interval of the token holds the draw, up to float32 rounding, and has a probability."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, spread, (2, vocabulary))
    values[rng.random(values.shape) < unlikely] = -np.inf
    values[:, rng.integers(vocabulary)] = 0.0
    rows, uniforms = torch.tensor([0, 1, 1, 0, 1, 0]), [*rng.random(4).tolist(), 0.0, 1 - 2**-53]
    tokens, log_probs, _, near = draw_tokens(torch.tensor(values).float(), rows, uniforms, 1.0)
    assert torch.isfinite(log_probs).all()
    for row, token, u, counted in zip(rows.tolist(), tokens.tolist(), uniforms, near.tolist(), strict=True):
        p = np.exp(values[row] - values[row].max())
        ends = [(math.fsum(p[:end]) / math.fsum(p), math.fsum(p[end:]) / math.fsum(p)) for end in (token, token + 1)]
        assert ends[0][0] - 2e-6 <= u <= ends[1][0] + 2e-6
        pair = [(below, min(below, above)) for below, above in ends]
        closest = min((abs(end - u) for end, apart in pair if apart > 1e-6), default=1.0)
        if abs(closest - NEAR) > 4e-6 and not any(0 < apart < 4e-6 for _, apart in pair):  # else either is right
            assert counted == (closest < NEAR)


@pytest.mark.parametrize("vocabulary", [5, 128, 300])
def test_logits_that_are_not_finite_give_a_log_probability_that_says_so(vocabulary: int) -> None:
    """The caller names the cause; no index may be out of range before that."""
    for values in ([torch.nan] * vocabulary, [torch.nan] + [0.0] * (vocabulary - 1), [-torch.inf] * vocabulary):
        tokens, log_probs, _, _ = draw_tokens(torch.tensor([values]), zeros(3), [0.0, 0.5, 0.999], 1.0)
        assert log_probs.isnan().all()
        assert ((tokens >= 0) & (tokens < vocabulary)).all()


def near(probabilities: list[float], uniforms: list[float]) -> list[bool]:
    return list(draw_tokens(torch.tensor([probabilities]).log(), zeros(len(uniforms)), uniforms, 1.0)[3].tolist())


def test_draws_within_1e_4_of_a_boundary_are_counted_and_zero_and_one_are_no_boundaries() -> None:
    uniforms = {0.49995: True, 0.50005: True, 0.49985: False, 0.50015: False, 0.80005: True, 0.65: False, 1e-6: False}
    assert near([0.5, 0.3, 0.2], [*uniforms, 1 - 1e-6]) == [*uniforms.values(), False]
    assert near([0.0, 1.0, 0.0], [1e-6, 0.5, 1 - 1e-6]) == [False] * 3


def test_a_greedy_choice_between_two_tokens_within_1e_4_nats_is_counted() -> None:
    for gap, counted in ((5e-5, True), (2e-4, False)):
        logits = torch.tensor([[1.0, 1.0 + gap, -3.0]], dtype=torch.float64)
        assert draw_tokens(logits, torch.tensor([0]), [0.0], 0.0)[3].tolist() == [counted]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_that_another_rounding_turns_was_counted(temperature: float) -> None:
    """Greedy rows are nearly tied, so that some of them turn."""
    generator, rows = torch.Generator().manual_seed(0), torch.arange(2_000).repeat_interleave(100 if temperature else 1)
    logits = torch.randn(2_000, 20, generator=generator) * (1.0 if temperature else 1e-4)
    noise = 2e-5 * (2 * torch.rand(logits.shape, generator=generator) - 1)
    uniforms = torch.rand(len(rows), generator=generator, dtype=torch.float64).tolist()
    tokens, _, _, counted = draw_tokens(logits, rows, uniforms, temperature)
    turned = draw_tokens(logits + noise, rows, uniforms, temperature)[0] != tokens
    assert turned.sum() > 3
    assert counted[turned].all()
    assert not temperature or counted.float().mean() < 0.01


@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 3, 20, 40, 10**6]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.8, 0.95, 1 - 1e-7, 1.0]),
    ties=st.booleans(),
)
@settings(max_examples=200)
def test_the_distribution_is_that_of_generate(seed: int, temperature: float, top_k: int, top_p: float, ties: bool) -> None:
    logits = 3 * torch.randn(4, 40, generator=torch.Generator().manual_seed(seed))
    logits = logits.round() if ties else logits
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)] if temperature != 1 else [])
    processors += [TopKLogitsWarper(top_k)] if top_k else []
    processors += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    expected: torch.Tensor = processors(torch.zeros(4, 1, dtype=torch.long), logits)
    rows, uniforms = torch.arange(4), [0.0, 0.3, 0.6, 1 - 2**-53]
    tokens, log_probs, entropies, _ = draw_tokens(logits, rows, uniforms, temperature, top_k, top_p)
    assert torch.equal(log_probs, torch.log_softmax(expected, -1)[rows, tokens])
    assert log_probs.isfinite().all()
    assert torch.allclose(entropies, torch.distributions.Categorical(logits=expected).entropy(), atol=1e-5)
