"""Top-k and top-p restrict sampling exactly as transformers does, and a model's own sampling settings can be taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import configured_sampling
from msgrpo_hub.models.sampling import draw_tokens, keep_likely
from tests.models.loading import edit, load

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


GENERATION: dict[str, dict[str, Any]] = {
    "Qwen3": {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [257, 256]},
    "whole numbers": {"do_sample": True, "temperature": 1, "top_k": 0, "top_p": 1},
    "Llama 3": {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
    "greedy": {"do_sample": False},
    "none": {},
}


@pytest.mark.parametrize("style", GENERATION)
def test_the_models_own_settings_are_those_of_its_generate_method(folder: Path, style: str) -> None:
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text("{}")
    edit(folder / "generation_config.json", **GENERATION[style])
    agent = load(folder, temperature=0.123, use_generation_config=True)
    used, _ = agent.model._prepare_generation_config(None)
    expected = (used.temperature, used.top_k, used.top_p) if used.do_sample else (0.0, 0, 1.0)
    assert (agent.temperature, agent.top_k, agent.top_p) == expected
    assert [type(value) for value in (agent.temperature, agent.top_k, agent.top_p)] == [float, int, float]
    assert configured_sampling(agent.model)["temperature"] == GENERATION[style].get("temperature", 0.0)


@pytest.mark.parametrize("setting", [{"temperature": [0.5]}, {"top_k": "many"}, {"top_p": 2.0}, {"temperature": -1.0}], ids=str)
def test_settings_of_a_model_that_make_no_sense_are_refused_in_one_line(folder: Path, setting: dict[str, Any]) -> None:
    edit(folder / "generation_config.json", do_sample=True, **setting)
    load(folder)  # without the switch they do nothing
    with pytest.raises(UserError, match=rf"{next(iter(setting))} = |cannot load") as caught:
        load(folder, use_generation_config=True)
    assert "\n" not in str(caught.value)
