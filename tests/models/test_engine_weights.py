"""The engine drops its caches when the weights change, and sampling leaves the model unchanged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward
from tests.models.engines import END, adapted_model, assert_same, computed_rows, distinct_contexts, sampled, some_prompts
from tests.tiny import adapted, tiny_model

IDS = torch.tensor([[1, 2, 3, 4]])


def step(model: PeftModel, **options: Any) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, **options)
    model(IDS).logits.square().sum().backward()
    optimizer.step()


def load_moved(model: PeftModel, **options: Any) -> None:
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()}, **options)


def replace_base_tensors(model: PeftModel) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data + 0.1


def scale_the_adapter(model: PeftModel) -> None:
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.scaling["default"] *= 3


CHANGES: dict[str, Callable[[PeftModel], Any]] = {
    "AdamW": step,
    "fused AdamW": lambda model: step(model, fused=True),
    "load_state_dict": load_moved,
    "load_state_dict, assign": lambda model: load_moved(model, assign=True),
    "other base tensors": replace_base_tensors,
    "another scale": scale_the_adapter,
    "adapter disabled": lambda model: model.base_model.disable_adapter_layers(),
    "another adapter": lambda model: model.set_adapter("other"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("caching", [False, True])
def test_the_caches_are_dropped_when_the_weights_change(change: str, caching: bool) -> None:
    model = adapted_model()
    engine, pairs = Engine(model, END), ([(1, 2, 3)], [[(4, 5)]])
    with engine.caching() if caching else nullcontext():
        before, scores = sampled(engine, some_prompts(), 1.0), engine.score(*pairs)
        CHANGES[change](model)
        after = sampled(engine, some_prompts(), 1.0)
        assert after == sampled(Engine(model, END), some_prompts(), 1.0)
        assert after != before
        assert scores != engine.score(*pairs) == Engine(model, END).score(*pairs)
        sampled(engine, some_prompts(), 1.0)
        rows = computed_rows(engine)
        sampled(engine, some_prompts(), 1.0)
        new = computed_rows(engine) - rows  # without the prefix, which is cached again
        assert 0 < new < distinct_contexts(after) if caching else new == distinct_contexts(after)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_sampling_restores_attention_and_mode(training: bool, implementation: str) -> None:
    model = adapted_model().train(training)
    base = model.get_base_model()
    base.set_attn_implementation(implementation)
    before = model(IDS).logits
    engine = Engine(model, END)
    sampled(engine, some_prompts())
    with pytest.raises(IndexError):
        sampled(engine, [(1, 2, 10**6)])
    assert base.config._attn_implementation == implementation
    assert all(module.training == training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(IDS).logits, before)
    assert before.requires_grad


def test_sampling_is_in_evaluation_mode() -> None:
    model = adapted(tiny_model(vocab_size=300), lora_dropout=0.9)
    expected = sampled(Engine(model, END), some_prompts())
    assert not torch.allclose(model.train()(IDS).logits, model(IDS).logits)
    assert_same(sampled(Engine(model, END), some_prompts()), expected)


@pytest.mark.parametrize("passes", [0, 1, 2], ids=["shared prefix", "rest of the prompts", "decoding"])
def test_an_engine_that_was_interrupted_samples_as_a_new_one(passes: int) -> None:
    model = adapted_model()
    engine, run, left = Engine(model, END), FastForward.run, passes
    engine.choose(max(some_prompts(), key=len), 10)

    def interrupted(forward: FastForward, *given: Any) -> torch.Tensor:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return run(forward, *given)

    with patch.object(FastForward, "run", interrupted), pytest.raises(KeyboardInterrupt):
        sampled(engine, some_prompts())
    assert_same(sampled(engine, some_prompts()), sampled(Engine(model, END), some_prompts()))
