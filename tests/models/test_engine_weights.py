"""The engine drops its caches when the weights change, and acting leaves the model as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from peft import PeftModel

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward
from tests.models.engines import END, adapted_model, assert_same, distinct_contexts, sampled, some_prompts


def optimizer_step(model: PeftModel, kind: Callable[..., torch.optim.Optimizer]) -> None:
    optimizer = kind([p for p in model.parameters() if p.requires_grad])
    model(torch.tensor([[1, 2, 3]])).logits.square().sum().backward()
    optimizer.step()


def adamw(model: PeftModel) -> None:
    optimizer_step(model, lambda parameters: torch.optim.AdamW(parameters, lr=0.1))


def fused_adamw(model: PeftModel) -> None:
    optimizer_step(model, lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True))


def load_state_dict(model: PeftModel) -> None:
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})


def assign_state_dict(model: PeftModel) -> None:
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()}, assign=True)


def replace_base_tensors(model: PeftModel) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data + 0.1


def disable_the_adapter(model: PeftModel) -> None:
    model.base_model.disable_adapter_layers()


def switch_adapters(model: PeftModel) -> None:
    model.set_adapter("other")


@pytest.mark.parametrize(
    "change",
    [
        adamw,
        fused_adamw,
        load_state_dict,
        assign_state_dict,
        replace_base_tensors,
        disable_the_adapter,
        switch_adapters,
    ],
)
@pytest.mark.parametrize("caching", [False, True])
def test_the_caches_are_dropped_when_the_weights_change(change: Callable[[PeftModel], None], caching: bool) -> None:
    model = adapted_model()
    engine = Engine(model, END)
    with engine.caching() if caching else nullcontext():
        before = sampled(engine, some_prompts(), 1.0)
        change(model)
        after = sampled(engine, some_prompts(), 1.0)
        assert after == sampled(Engine(model, END), some_prompts(), 1.0)
        assert after != before
        rows = engine.forward_rows
        sampled(engine, some_prompts(), 1.0)
        assert engine.forward_rows == rows + (0 if caching else distinct_contexts(after))  # the prefix is kept again


# ---- acting leaves no trace


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_acting_leaves_attention_and_mode_as_they_were(training: bool, implementation: str) -> None:
    model = adapted_model().train(training)
    base = model.get_base_model()
    base.set_attn_implementation(implementation)
    ids = torch.tensor([[1, 2, 3, 4]])
    before = model(ids).logits
    engine = Engine(model, END)
    sampled(engine, some_prompts())
    with pytest.raises(IndexError):
        sampled(engine, [(1, 2, 10**6)])
    assert base.config._attn_implementation == implementation
    assert all(module.training == training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(ids).logits, before)
    assert before.requires_grad


def test_acting_is_in_evaluation_mode() -> None:
    model = adapted_model()
    noisy = copy.deepcopy(model).train()
    for module in noisy.modules():
        if isinstance(module, torch.nn.ModuleDict) and "default" in module and isinstance(module["default"], torch.nn.Identity):
            module["default"] = torch.nn.Dropout(0.9)
    ids = torch.tensor([[1, 2, 3, 4]])
    assert not torch.allclose(noisy(ids).logits, model(ids).logits)
    assert_same(sampled(Engine(noisy, END), some_prompts()), sampled(Engine(model, END), some_prompts()))


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_an_engine_that_was_interrupted_samples_as_if_it_had_not_been(passes: int) -> None:
    """In the shared prefix, in the rest of the prompts, or in a decoding step."""
    model = adapted_model()
    expected = sampled(Engine(model, END), some_prompts())
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
    assert_same(sampled(engine, some_prompts()), expected)
