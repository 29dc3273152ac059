"""The comparison of an engine with the model's own passes catches faults, in 16 bits too."""

from __future__ import annotations

import sys
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
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models are treated as large ones: their first layers are compared, in float32."""
    monkeypatch.setattr(engine_check, "SMALL", 0)


def random_model(kind: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    model: PreTrainedModel = tiny_model(kind).to(dtype)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["qwen2", "llama", "gemma3_text", "gpt_oss"])
def test_a_model_in_any_type_has_the_fast_engine(kind: str, dtype: torch.dtype) -> None:
    forward, why = choose_forward(random_model(kind, dtype), "auto", PROMPT, 0)
    assert (forward.name, why) == ("fast", "")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_dropped_window_is_caught(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("gemma3_text", dtype)
    window = model.config.sliding_window
    assert choose_forward(model, "fast", PROMPT, window + 2)[0].name == "fast"
    monkeypatch.setattr(attention, "beyond_window", lambda q, k, _, dtype: torch.zeros(*q.shape, k.shape[-1], dtype=dtype))
    with pytest.raises(UserError, match="log-probabilities of sampling differ"):
        choose_forward(random_model("gemma3_text", dtype), "fast", PROMPT, window + 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_do_not_fork_are_caught(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    select = RowLayer.select

    def keeps_the_last(layer: RowLayer, rows: torch.Tensor) -> None:
        select(layer, rows[-1:].expand(len(rows)))

    monkeypatch.setattr(RowLayer, "select", keeps_the_last)
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


def test_a_model_that_is_not_causal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("llama")
    monkeypatch.setattr(sys.modules[type(model).__module__], "create_causal_mask", lambda **_: None)
    for layer in model.get_decoder().layers:
        layer.self_attn.is_causal = False
    with pytest.raises(UserError, match="it is not causal"):
        choose_forward(model, "auto", PROMPT, 0)


def test_a_model_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_qwen()
    choose_forward(model, "auto", PROMPT, 0)
    monkeypatch.setattr(engine_check, "_compare", lambda *_: pytest.fail("compared again"))
    assert choose_forward(model, "auto", PROMPT, 0)[0].name == "fast"
