"""Tokens are sampled with the frequencies of the distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msgrpo_hub.episode import NEAR
from msgrpo_hub.models import sampling
from msgrpo_hub.models.sampling import draw_tokens

# ---- drawing


def grid_of_uniforms(count: int) -> list[float]:
    return [(i + 0.5) / count for i in range(count)]


@given(
    logits=st.lists(st.lists(st.floats(-4, 4), min_size=5, max_size=5), min_size=1, max_size=3),
    temperature=st.sampled_from([0.5, 1.0, 1.25]),
)
@settings(max_examples=50)
def test_draws_have_the_frequencies_of_the_distribution(logits: list[list[float]], temperature: float) -> None:
    """Evenly spaced numbers replace random ones, so that every count is off by at most one."""
    n = 1000
    for row, values in enumerate(logits):
        rows = torch.full((n,), row)
        tokens, log_probs, entropies, _ = draw_tokens(torch.tensor(logits), rows, grid_of_uniforms(n), temperature)
        p = np.exp(np.array(values) / temperature)
        p /= p.sum()
        assert np.bincount(tokens.numpy(), minlength=5) == pytest.approx(n * p, abs=1.01)
        assert log_probs.numpy() == pytest.approx(np.log(p)[tokens.numpy()], abs=1e-5)
        assert entropies.numpy() == pytest.approx(np.full(n, -(p * np.log(p)).sum()), abs=1e-5)


def test_the_most_likely_token_at_temperature_zero_is_scored_at_temperature_one() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    tokens, log_probs, entropies, _ = draw_tokens(logits, torch.tensor([1, 0, 1]), [0.99, 0.0, 0.5], 0.0)
    assert tokens.tolist() == [0, 1, 0]
    assert torch.equal(log_probs, torch.log_softmax(logits, -1)[[1, 0, 1], [0, 1, 0]])
    assert entropies[0] == entropies[2] != entropies[1]


def test_an_impossible_token_is_never_drawn() -> None:
    impossible = -torch.inf
    logits = torch.tensor([[impossible, 0.0, impossible, 0.0, impossible]])
    uniforms = [0.0, 0.25, 0.4999999, 0.5, 0.75, 1 - 2**-53]
    tokens, log_probs, entropies, _ = draw_tokens(logits, torch.zeros(6, dtype=torch.long), uniforms, 1.0)
    assert tokens.tolist() == [1, 1, 1, 3, 3, 3]
    assert log_probs.tolist() == entropies.mul(-1).tolist() == pytest.approx([-np.log(2)] * 6)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rows_that_are_drawn_from_in_parts_give_each_sample_its_own_token(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against draws from all rows at once; a row without samples, and samples in no order, included."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 3, (7, 50)), dtype=torch.float32)
    rows = torch.tensor([6, 0, 3, 3, 5, 0, 6, 1, 4, 6])
    uniforms = rng.random(len(rows)).tolist()
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
    tokens, _, _, _ = draw_tokens(torch.zeros(1, n), torch.zeros(64, dtype=torch.long), grid_of_uniforms(64), 1.0)
    assert tokens.tolist() == pytest.approx([(i + 0.5) * n / 64 for i in range(64)], abs=1)


@given(
    vocabulary=st.sampled_from([1, 127, 128, 129, 300, 1000]),
    unlikely=st.floats(0, 0.99),
    spread=st.floats(0, 30),
    seed=st.integers(0, 99),
)
@example(vocabulary=128, unlikely=0.5, spread=16.625, seed=18)  # what lies above its token is lost in a sum of 1
@settings(max_examples=100)
def test_a_token_is_the_inverse_of_the_whole_distribution(vocabulary: int, unlikely: float, spread: float, seed: int) -> None:
    """Against exact sums: the interval of the token holds the draw, to what float32 rounds, and has a probability."""
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
        tokens, log_probs, _, _ = draw_tokens(torch.tensor([values]), torch.zeros(3, dtype=torch.long), [0.0, 0.5, 0.999], 1.0)
        assert log_probs.isnan().all()
        assert ((tokens >= 0) & (tokens < vocabulary)).all()
