"""Acting with merged weights: the same policy, faster; the base is restored bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.weights import merged, weights_version, without_adapter
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


def test_an_adapter_on_other_layers_than_another_is_merged_where_it_is() -> None:
    """PEFT makes it active on the layers of both."""
    model = get_peft_model(tiny_model(vocab_size=64, initializer_range=0.02), LoraConfig(r=4, target_modules=["q_proj"])).eval()
    model.add_adapter("other", LoraConfig(r=4, target_modules=["v_proj", "up_proj"]))
    stir(model, 1)
    model.set_adapter("other")
    tokens, log_probs = sampled(model)
    with merged(model):
        merged_tokens, merged_log_probs = sampled(model)
    assert merged_tokens == tokens
    np.testing.assert_allclose(merged_log_probs, log_probs, atol=1e-5)


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


def test_no_stale_keys_and_values_when_the_adapter_changes_between_two_merges() -> None:
    """New tensors reuse the addresses of freed ones: an engine that compares addresses alone would not notice."""
    model = lora_model()
    engine = Engine(model, frozenset({0}))
    versions = set()
    for seed in range(6):
        stir(model, seed)
        with merged(model):
            versions.add(weights_version(model))
            ours = engine.sample(PROMPTS, [np.random.default_rng(i) for i in range(3)], 1.0, 6)
        fresh = Engine(model, frozenset({0})).sample(PROMPTS, [np.random.default_rng(i) for i in range(3)], 1.0, 6)
        for a, b in zip(ours, fresh, strict=True):
            assert a.token_ids == b.token_ids
            np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-5)
    assert len(versions) == 6


@pytest.mark.parametrize("model", [lora_model(torch.bfloat16), lora_model(use_dora=True)], ids=["bfloat16", "DoRA"])
def test_layers_that_cannot_be_merged_exactly_stay_unchanged(model: PeftModel) -> None:
    before = weights_version(model)
    with merged(model):
        assert weights_version(model) == before


def test_a_model_without_an_adapter_stays_unchanged() -> None:
    model = lora_model().unload()
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
