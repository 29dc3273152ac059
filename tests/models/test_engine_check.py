"""The comparison of an engine with the model's own passes catches faults, in 16 bits too, and its result is stored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import attention, engine_check
from msgrpo_hub.models.attention import RowLayer
from msgrpo_hub.models.engine_check import choose_forward
from tests.families import tiny_model
from tests.models.engines import some_prompts
from tests.tiny import tiny_model as tiny_qwen

PROMPT = max(some_prompts(), key=len)


@pytest.fixture(autouse=True)
def as_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tiny models are treated as large ones: first layers in float32, then 16 bits whole; the result is stored."""
    monkeypatch.setattr(engine_check, "SMALL", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def random_model(kind: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    model: PreTrainedModel = tiny_model(kind).to(dtype)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["qwen2", "llama", "gemma3_text", "gpt_oss"])
def test_a_model_in_any_type_has_the_fast_engine(kind: str, dtype: torch.dtype) -> None:
    assert choose_forward(random_model(kind, dtype), "auto", PROMPT, 0).name == "fast"


def test_scores_that_overflow_in_eager_attention_alone_are_compared_with_another() -> None:
    model = random_model("qwen2", torch.float16)
    for layer in model.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):  # a score is 2¹⁷, and 2¹⁷/√D once it is scaled
            projection.bias.data.fill_((2**17 / layer.self_attn.head_dim) ** 0.5)
    assert choose_forward(model, "auto", PROMPT, 0).name == "fast"
    model.set_attn_implementation("eager")
    assert model(torch.tensor([PROMPT])).logits.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_dropped_window_is_caught(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = random_model("gemma3_text", dtype)
    window = model.config.sliding_window
    assert choose_forward(model, "fast", PROMPT, window + 2).name == "fast"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))  # the result above is stored
    monkeypatch.setattr(attention, "beyond_window", lambda q, k, _, dtype: torch.zeros(*q.shape, k.shape[-1], dtype=dtype))
    with pytest.raises(UserError, match="log-probabilities of sampling differ"):
        choose_forward(random_model("gemma3_text", dtype), "fast", PROMPT, window + 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_do_not_fork_are_caught(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    reorder = RowLayer.reorder_cache
    monkeypatch.setattr(RowLayer, "reorder_cache", lambda layer, rows: reorder(layer, rows[-1:].expand(len(rows))))
    with pytest.raises(UserError, match="log-probabilities of sampling differ"):
        choose_forward(random_model("llama", dtype), "fast", PROMPT, 0)


def test_a_mask_that_shows_later_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = attention.attend

    def sees_all(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, *rest: Any, **more: Any) -> Any:
        is_square = query.shape[2] == key.shape[2]
        return original(query, key, value, torch.zeros_like(mask) if is_square else mask, *rest, **more)

    monkeypatch.setattr(attention, "attend", sees_all)
    with pytest.raises(UserError, match="log-probabilities of"):
        choose_forward(random_model("qwen2"), "fast", PROMPT, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_fault_that_float32_does_not_show_is_caught(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    original = attention.attend

    def without_values_in_low_types(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **more: Any) -> Any:
        return original(query, key, value if query.dtype == torch.float32 else torch.zeros_like(value), *rest, **more)

    monkeypatch.setattr(attention, "attend", without_values_in_low_types)
    with pytest.raises(UserError, match="log-probabilities of sampling differ"):
        choose_forward(random_model("llama", dtype), "fast", PROMPT, 0)


def test_the_result_is_stored_for_the_weights_and_made_again_if_damaged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, "msgrpo_hub")
    for seed, comparisons in ((0, 1), (0, 1), (1, 2)):
        assert choose_forward(tiny_qwen(seed=seed), "auto", PROMPT, 0).name == "fast"
        assert [line.startswith("comparing the engine") for line in caplog.messages] == [True] * comparisons
    for stored in tmp_path.rglob("*.json"):
        stored.write_text('["fast"')
    assert choose_forward(tiny_qwen(), "auto", PROMPT, 0).name == "fast"
    assert len(caplog.messages) == 3
