"""Merged weights and copies for few rows: the same policy, faster; the base is restored bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.nn import functional

from msgrpo_hub.models import weights
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward, PlainForward
from msgrpo_hub.models.weights import (
    FEWEST,
    HAS_ONE_DNN,
    LARGE,
    MOST,
    FewRowsLinear,
    few_rows_by_one_dnn,
    merged,
    weights_version,
    without_adapter,
)
from tests.models.engines import adapted_model
from tests.tiny import tiny_model

PROMPTS = [(1, 2, 3, 4, 5), (1, 2, 3, 9), (1, 2, 3, 4, 7, 8)]


def lora_model(dtype: torch.dtype = torch.float32, **settings: object) -> PeftModel:
    """A tiny model with a LoRA adapter whose weights are not zero."""
    base = tiny_model(vocab_size=64, initializer_range=0.02).to(dtype)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", **settings)).eval()
    stir(model, 1)
    return model


def stir(model: PeftModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))


def sampled(model: PeftModel) -> tuple[list[list[int]], list[float]]:
    samples = Engine(model, frozenset({0})).sample(PROMPTS, [np.random.default_rng(i) for i in range(3)], 1.0, 12)
    return [sample.token_ids for sample in samples], [p for sample in samples for p in sample.log_probs]


def test_merged_weights_sample_the_same_tokens_with_the_same_log_probs() -> None:
    model = lora_model()
    tokens, log_probs = sampled(model)
    with merged(model):
        merged_tokens, merged_log_probs = sampled(model)
    assert merged_tokens == tokens
    np.testing.assert_allclose(merged_log_probs, log_probs, atol=1e-5)
    with model.disable_adapter():
        assert max(abs(a - b) for a, b in zip(sampled(model)[1], log_probs, strict=False)) > 0.01  # the adapter has an effect


def test_an_adapter_that_is_scaled_anew_is_another_version_and_nothing_of_the_old_one_is_used() -> None:
    model = lora_model()
    engine, before = Engine(model, frozenset({0})), weights_version(model)
    old = engine.sample(PROMPTS, [np.random.default_rng(i) for i in range(3)], 1.0, 6)
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.scaling["default"] *= 3
    assert weights_version(model) != before
    both = (each.sample(PROMPTS, [np.random.default_rng(i) for i in range(3)], 1.0, 6) for each in (engine, Engine(model, {0})))
    for a, b, c in zip(*both, old, strict=True):
        np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-5)
        assert a.log_probs != c.log_probs


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_shares_its_weight_with_the_embedding_is_not_merged(tied: bool) -> None:
    base = tiny_model(vocab_size=64, initializer_range=0.02, tie_word_embeddings=tied)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "lm_head"])).eval()
    stir(model, 1)
    ids = torch.tensor([PROMPTS[0]])
    with torch.no_grad():
        expected = model(ids).logits
        with merged(model):
            found, with_base_alone = model(ids).logits, model.base_model.model(ids).logits
    assert (found - expected).abs().max() < 1e-5
    assert (with_base_alone - expected).abs().max() < 1e-5
    assert len({layer.weight.data_ptr() for layer in (base.get_input_embeddings(), base.lm_head)}) == 2 - tied


def test_the_base_is_restored_bit_for_bit_even_after_an_error() -> None:
    model = lora_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    changed = []

    def fail() -> None:
        changed.extend(name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name]))
        raise KeyError

    with pytest.raises(KeyError), merged(model):
        fail()
    assert changed
    after = model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert all(weight.requires_grad for name, weight in model.named_parameters() if "lora_" in name)


@pytest.mark.parametrize("model", [lora_model(torch.bfloat16), lora_model(use_dora=True)], ids=["bfloat16", "DoRA"])
def test_layers_that_cannot_be_merged_exactly_stay_unchanged(model: PeftModel) -> None:
    before = weights_version(model)
    with merged(model):
        assert weights_version(model) == before


def test_what_an_adapter_has_beside_lora_is_off_without_it_too() -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM")
    model = get_peft_model(tiny_model("llama", vocab_size=300), lora).eval()
    with torch.no_grad():
        model.get_base_model().lm_head.modules_to_save["default"].weight += 1
    ids = torch.tensor([[3, 1, 4]])
    with model.disable_adapter():
        base = model(ids).logits
    assert not torch.allclose(model(ids).logits, base, atol=1e-2)
    with without_adapter(model):
        assert torch.equal(model(ids).logits, base)


def test_without_its_adapter_a_model_is_its_base_and_has_the_adapter_back_even_after_an_error() -> None:
    model = adapted_model()
    ids = torch.tensor([[3, 1, 4]])
    with_it = model(ids).logits
    with model.disable_adapter():
        base = model(ids).logits
    assert not torch.allclose(with_it, base, atol=1e-3)
    with without_adapter(model):
        assert torch.equal(model(ids).logits, base)
        with without_adapter(model):
            pass
        assert torch.equal(model(ids).logits, base), "the outer context still holds"
        assert not model(ids).logits.requires_grad
    with pytest.raises(ZeroDivisionError), without_adapter(model):
        _ = 1 / 0
    assert torch.equal(model(ids).logits, with_it)
    assert all(parameter.requires_grad for name, parameter in model.named_parameters() if "lora_B.default" in name)


# ---- products of few rows by oneDNN

one_dnn = pytest.mark.skipif(not HAS_ONE_DNN, reason="this build of torch has no oneDNN")
TYPES = [torch.float32, torch.bfloat16] if HAS_ONE_DNN and torch.ops.mkldnn._is_mkldnn_bf16_supported() else [torch.float32]


def layers(bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A large layer and a small one."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1024, LARGE // 1024, bias), nn.Linear(LARGE // 1024, 8, bias)).to(dtype)


@one_dnn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_few_rows_by_one_dnn_are_the_same_but_for_rounding(dtype: torch.dtype, bias: bool) -> None:
    model = layers(bias, dtype)
    for rows in (FEWEST[dtype], 17, MOST, MOST + 1):
        x = torch.randn(rows, 1, 1024).to(dtype)
        with torch.no_grad():
            expected = model(x)
            with few_rows_by_one_dnn(model):
                assert torch.allclose(model(x), expected, atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
                assert [type(layer) for layer in model] == [FewRowsLinear, nn.Linear]
                assert (model[0].copy is not None) == (rows <= MOST)
        assert [type(layer) for layer in model] == [nn.Linear] * 2


@one_dnn
def test_weights_that_change_inside_the_context_are_copied_again() -> None:
    model, x = layers(), torch.randn(8, 1024)
    with torch.no_grad(), few_rows_by_one_dnn(model):
        for change in (lambda w: w.mul_(2), lambda w: setattr(w, "data", w.detach().clone().neg_()), lambda w: w.zero_()):
            model(x)
            change(model[0].weight)
            expected = functional.linear(functional.linear(x, *model[0].parameters()), *model[1].parameters())
            assert torch.allclose(model(x), expected, atol=1e-5)


@one_dnn
def test_copies_have_a_size_limit_and_gradients_do_not_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(layers(), layers()[:1]), torch.randn(8, 1024)
    first, second = model[0][0], model[1][0]
    monkeypatch.setattr(weights, "COPIED", first.weight.nbytes)
    with few_rows_by_one_dnn(model):
        first(x).sum().backward()
        assert first.weight.grad is not None
        assert first.copy is None
        with torch.no_grad():
            expected = functional.linear(x, second.weight, second.bias)
            first(x)
            assert torch.allclose(second(x), expected, atol=1e-5)
        assert first.copy is not None
        assert second.copy is None
    assert not {"copy", "copies"} & (vars(first).keys() | vars(second).keys())


@one_dnn
def test_both_engines_sample_with_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LARGE", 1)
    model = tiny_model(vocab_size=64)
    for forward in (FastForward(model), PlainForward(model)):
        with forward.acting():
            assert any(isinstance(layer, FewRowsLinear) for layer in model.modules())
        assert not any(isinstance(layer, FewRowsLinear) for layer in model.modules())
