"""LoRA beside its bases: as one product of fixed memory, whose adapters change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM

from msgrpo_hub.models.attention import base_of
from msgrpo_hub.models.direct_decoder import DirectDecoder
from msgrpo_hub.models.lora import FixedProduct, factors, is_plain_lora
from tests.models.engines import adapted_model
from tests.tiny import adapted, tiny_model


def layers_of(model: PeftModel) -> list[Any]:
    attention = cast(Any, base_of(model)).model.layers[0].self_attn
    return [attention.q_proj, attention.k_proj, attention.v_proj]


@pytest.mark.parametrize("targets", [["q_proj", "k_proj", "v_proj"], ["k_proj"], ["q_proj", "v_proj"], ["o_proj"]], ids="+".join)
def test_a_fixed_product_is_the_layers_side_by_side(targets: list[str]) -> None:
    layers = layers_of(adapted(tiny_model("qwen2", vocab_size=300), target_modules=targets))
    states = torch.randn(3, 2, layers[0].in_features)
    expected = torch.cat([layer(states) for layer in layers], -1)
    assert torch.allclose(FixedProduct(layers)(states), expected, atol=1e-6)


def test_the_layers_stay_in_use_as_parts_of_one_tensor() -> None:
    """Nothing is there twice, and a second product takes the same memory."""
    layers = layers_of(adapted(tiny_model("qwen2", vocab_size=300)))
    states = torch.randn(3, layers[0].in_features)
    before = [layer(states) for layer in layers]
    product = FixedProduct(layers)
    memory = {layer.weight.untyped_storage().data_ptr() for layer in layers}
    assert memory == {product._weights.untyped_storage().data_ptr()}
    assert all(torch.equal(layer(states), output) for layer, output in zip(layers, before, strict=True))
    assert FixedProduct(layers)._weights.data_ptr() == product._weights.data_ptr()
    assert FixedProduct([layer.base_layer for layer in layers])._weights.data_ptr() == product._weights.data_ptr()


def test_weights_that_lie_side_by_side_in_a_memory_of_others_are_moved() -> None:
    layers = layers_of(adapted(tiny_model("qwen2", vocab_size=300)))
    flat = torch.cat([layer.weight.data.flatten() for layer in layers] + [torch.ones(10_000)])
    parts = flat.split([layer.weight.numel() for layer in layers] + [10_000])
    for layer, part in zip(layers, parts, strict=False):
        layer.weight.data = part.view_as(layer.weight)
    FixedProduct(layers)
    assert torch.equal(parts[-1], torch.ones(10_000)), "what follows them is not the product's"


def test_a_refreshed_product_has_the_adapters_and_biases_of_now() -> None:
    layers = layers_of(adapted(tiny_model("qwen2", vocab_size=300)))
    product, states = FixedProduct(layers), torch.randn(3, layers[0].in_features)
    with torch.no_grad():
        for layer in layers:
            layer.lora_A["default"].weight.mul_(3)
            layer.lora_B["default"].weight.add_(0.1)
            layer.bias.add_(1)
    expected = torch.cat([layer(states) for layer in layers], -1)
    assert not torch.allclose(product(states), expected, atol=1e-2)
    product.refresh()
    assert torch.allclose(product(states), expected, atol=1e-5)


def test_factors_are_those_of_the_active_adapter() -> None:
    model = adapted_model()
    layer = layers_of(model)[0]
    for name in ("other", "default"):
        model.set_adapter(name)
        first, second = factors(layer)
        assert torch.allclose(second @ first, layer.get_delta_weight(name))
    assert is_plain_lora(layer)
    assert not is_plain_lora(nn.Linear(2, 2))


def test_a_model_whose_weights_lie_side_by_side_is_merged_and_saved_like_any_other(tmp_path: Path) -> None:
    model = adapted(tiny_model("qwen2", vocab_size=300))
    ids = torch.tensor([[3, 1, 4]])
    expected = model(ids).logits
    DirectDecoder(model, fixed=True)
    assert torch.allclose(model(ids).logits, expected, atol=1e-6)
    merged = model.merge_and_unload()
    merged.save_pretrained(tmp_path)
    assert torch.allclose(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, expected, atol=1e-5)
