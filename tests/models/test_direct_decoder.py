"""Common decoders computed by direct calls: what their modules compute, and their modules wherever there is more to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from peft import PeftModel, PrefixTuningConfig, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.downloads.names import POCKET
from msgrpo_hub.models.attention import base_of
from msgrpo_hub.models.devices import on_threads
from msgrpo_hub.models.direct_decoder import DirectDecoder, is_direct
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.fast_forward import FastForward
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import Sample
from msgrpo_hub.models.weights import merged
from tests.models.engines import END, TOLERANCE, assert_same, sampled, some_prompts
from tests.tiny import adapted, tiny_model

Model = PreTrainedModel | PeftModel

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
MODELS: dict[str, Callable[[], Model]] = {
    "llama": lambda: tiny_model("llama", vocab_size=300),
    "llama with biases": lambda: tiny_model("llama", vocab_size=300, attention_bias=True, mlp_bias=True),
    "llama, dynamic": lambda: tiny_model("llama", vocab_size=300, rope_parameters=DYNAMIC, max_position_embeddings=24),
    "mistral": lambda: tiny_model("mistral", vocab_size=300),
    "mistral, window": lambda: tiny_model("mistral", vocab_size=300, sliding_window=7),
    "qwen2": lambda: tiny_model("qwen2", vocab_size=300),
    "qwen2, windows": lambda: tiny_model(
        "qwen2", vocab_size=300, use_sliding_window=True, sliding_window=7, layer_types=["sliding_attention", "full_attention"]
    ),
    "qwen3": lambda: tiny_model("qwen3", vocab_size=300),
    "LoRA": lambda: adapted(tiny_model("qwen2", vocab_size=300)),
    "DoRA": lambda: adapted(tiny_model("qwen3", vocab_size=300), use_dora=True),
    "LoRA on some": lambda: adapted(tiny_model("llama", vocab_size=300), target_modules=["q_proj", "down_proj"]),
}


def replies(model: Model, direct: bool) -> list[Sample]:
    engine = Engine(model.eval(), END, kind="fast")
    engine.choose(max(some_prompts(), key=len), 10)
    engine._forward = FastForward(model, direct)
    return sampled(engine, some_prompts())


def without_modules(model: Model) -> Any:
    """Inside, no pass of the model's own modules is allowed."""
    return patch.object(type(base_of(model)), "forward", side_effect=AssertionError("computed by its modules"))


@pytest.mark.parametrize("name", MODELS)
def test_replies_are_those_of_the_modules(name: str) -> None:
    model = MODELS[name]()
    expected = replies(model, direct=False)
    engine = Engine(model, END)
    engine.choose(max(some_prompts(), key=len), 10)
    with without_modules(model):
        assert_same(sampled(engine, some_prompts()), expected)


@pytest.mark.parametrize("adapter", [None, "snake"])
@pytest.mark.parametrize("is_merged", [False, True])
def test_the_built_in_base_and_its_adapters_compute_the_same_bits_on_one_thread(adapter: str | None, is_merged: bool) -> None:
    loaded = LanguageModel.from_pretrained(adapter or POCKET)
    assert loaded.threads == 1
    with on_threads(1), merged(loaded.model) if is_merged else nullcontext():
        assert replies(loaded.model, direct=True) == replies(loaded.model, direct=False)


def test_bfloat16_rounds_where_the_modules_do() -> None:
    model = tiny_model("qwen3", vocab_size=300).bfloat16()
    for ours, theirs in zip(replies(model, direct=True), replies(model, direct=False), strict=True):
        same = [a == b for a, b in zip(ours.token_ids, theirs.token_ids, strict=False)]
        shared = same.index(False) if False in same else len(same)
        assert ours.log_probs[:shared] == pytest.approx(theirs.log_probs[:shared], abs=0.1)


def test_hooks_are_called_by_the_modules() -> None:
    model = MODELS["qwen2"]()
    base_of(model).model.embed_tokens.register_forward_hook(lambda *_: None)
    assert not is_direct(model)


def test_other_modules_stay_with_their_own_code() -> None:
    assert not any(map(is_direct, (tiny_model("gemma2"), tiny_model("phi3"), tiny_model("olmo2"))))
    prefixed = get_peft_model(tiny_model("llama"), PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"))
    assert not is_direct(prefixed)

    class Own(torch.nn.Module):
        def forward(self, states: Tensor) -> Tensor:
            return 2 * states

    changed: Any = tiny_model("llama")
    assert is_direct(changed)
    changed.model.layers[1].mlp = Own()
    assert not is_direct(changed)


def test_a_model_that_is_computed_otherwise_falls_back_to_its_modules() -> None:
    model = MODELS["qwen3"]()
    expected = replies(model, direct=False)
    compute = DirectDecoder.__call__
    with patch.object(DirectDecoder, "__call__", lambda *given: 1.01 * compute(*given)):
        engine = Engine(model, END)
        assert engine.choose(some_prompts()[0], 10).name == "fast"
        assert_same(sampled(engine, some_prompts()), expected)


def test_copies_of_weights_end_with_the_episodes() -> None:
    model = MODELS["llama"]()
    forward = Engine(model, END).choose(some_prompts()[0], 10)
    assert isinstance(forward, FastForward)
    with torch.no_grad(), forward.acting():
        with forward.acting():
            first, _ = forward.prefill([(1, 2, 3)])
        assert forward._decoder is not None
        base_of(model).lm_head.weight.mul_(2)
        forward.forget()
        second, _ = forward.prefill([(1, 2, 3)])
    assert torch.allclose(second, 2 * first, atol=TOLERANCE)
    assert forward._decoder is None
