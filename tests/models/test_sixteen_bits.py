"""What learning computes otherwise in 16 bits on a GPU: the outputs and gradients of PEFT's layers and of the modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from unittest.mock import patch

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.models import sixteen_bits
from msgrpo_hub.models.sixteen_bits import LowLora, OneNorm, in_sixteen_bits
from tests.tiny import adapted, tiny_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], device=DEVICE)


@pytest.fixture
def _everywhere() -> Iterator[None]:
    """Every adapter counts as one on a 16-bit layer of a GPU."""
    with patch.object(sixteen_bits, "_is_low", lambda _weight: True):
        yield


def outputs_and_gradients(model: PeftModel) -> list[Tensor]:
    model.zero_grad()
    logits = model(IDS).logits
    (logits.float() ** 2).sum().backward()
    trained = [parameter for name, parameter in model.named_parameters() if "lora_" in name]
    assert all(parameter.grad is not None and parameter.dtype == torch.float32 for parameter in trained)
    return [logits.detach().float(), *(cast(Tensor, parameter.grad).clone() for parameter in trained)]


def trainable(dtype: torch.dtype = torch.float32) -> PeftModel:
    model = adapted(tiny_model("qwen2", vocab_size=300).to(DEVICE, dtype))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model.eval()


@pytest.mark.usefixtures("_everywhere")
def test_products_in_the_type_of_the_base_give_the_outputs_and_gradients_of_peft() -> None:
    model = trainable()
    expected = outputs_and_gradients(model)
    with in_sixteen_bits(model), patch("peft.tuners.lora.Linear.forward", side_effect=AssertionError("by PEFT")):
        assert {LowLora, OneNorm} <= {type(layer) for layer in model.modules()}
        found = outputs_and_gradients(model)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))
    assert not {LowLora, OneNorm} & {type(layer) for layer in model.modules()}


@pytest.mark.usefixtures("_everywhere")
def test_in_bfloat16_they_differ_from_those_of_peft_by_its_rounding_also_on_a_gpu() -> None:
    exact = outputs_and_gradients(trainable())
    model = trainable(torch.bfloat16)
    by_peft = outputs_and_gradients(model)
    with in_sixteen_bits(model):
        ours = outputs_and_gradients(model)

    def error(found: list[Tensor]) -> float:
        return max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))

    assert 0 < error(ours) < 2 * error(by_peft)


@pytest.mark.usefixtures("_everywhere")
def test_a_layer_whose_adapter_is_off_is_its_base() -> None:
    model = trainable()
    with model.disable_adapter():
        expected = model(IDS).logits
        with in_sixteen_bits(model):
            assert torch.equal(model(IDS).logits, expected)


def test_float32_and_a_cpu_stay_with_peft_and_the_modules() -> None:
    for model in (trainable(), adapted(tiny_model("llama").bfloat16(), use_dora=True)):
        with in_sixteen_bits(model):
            assert not {LowLora, OneNorm} & {type(layer) for layer in model.modules()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_a_base_in_bfloat16_is_learned_from_so() -> None:
    with in_sixteen_bits(model := trainable(torch.bfloat16)):
        assert {LowLora, OneNorm} <= {type(layer) for layer in model.modules()}
