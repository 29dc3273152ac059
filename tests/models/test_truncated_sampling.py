"""Top-k and top-p restrict sampling exactly as transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.sampling import draw_tokens, keep_likely
from tests.models.loading import load

VOCABULARY = 40


def of_transformers(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """The logits that `model.generate()` samples from."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)] if temperature != 1 else [])
    processors += [TopKLogitsWarper(top_k)] if top_k else []
    processors += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    warped: torch.Tensor = processors(torch.zeros(len(logits), 1, dtype=torch.long), logits)
    return warped


CASES = st.tuples(
    st.integers(0, 10**6),
    st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    st.sampled_from([0, 1, 3, 20, VOCABULARY, 10**6]),
    st.sampled_from([1e-9, 0.1, 0.5, 0.8, 0.95, 1 - 1e-7, 1.0]),
)


@given(case=CASES, ties=st.booleans())
@settings(max_examples=200)
def test_the_distribution_is_that_of_the_warpers_of_transformers(case: tuple[int, float, int, float], ties: bool) -> None:
    seed, temperature, top_k, top_p = case
    logits = 3 * torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    logits = logits.round() if ties else logits
    expected = of_transformers(logits, temperature, top_k, top_p)
    assert torch.equal(keep_likely(logits / temperature, top_k, top_p), expected)
    rows, uniforms = torch.arange(4), [0.0, 0.3, 0.6, 1 - 2**-53]
    tokens, log_probs, entropies, _ = draw_tokens(logits, rows, uniforms, temperature, top_k, top_p)
    log_p = torch.log_softmax(expected, -1)
    assert torch.equal(log_probs, log_p[rows, tokens])
    assert log_probs.isfinite().all()
    assert torch.allclose(entropies, torch.distributions.Categorical(logits=expected).entropy(), atol=1e-5)


def test_greedy_replies_do_not_depend_on_top_k_and_top_p() -> None:
    logits = torch.randn(3, VOCABULARY)
    plain, restricted = (draw_tokens(logits, torch.arange(3), [0.5] * 3, 0.0, *more) for more in ((), (2, 0.1)))
    assert all(torch.equal(a, b) for a, b in zip(plain, restricted, strict=True))


@pytest.mark.parametrize("options", [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_p": float("nan")}], ids=str)
def test_a_top_k_or_top_p_out_of_range_is_refused(qwen2_folder: Path, options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UserError, match=rf"{name} = {value}: expected "):
        load(qwen2_folder, **options)
