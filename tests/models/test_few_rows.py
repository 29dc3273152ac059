"""Products of few rows by oneDNN: the same numbers but for rounding, only where they are faster, and only while acting."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from msgrpo_hub.models.attention import acting
from msgrpo_hub.models.few_rows import FEWEST, HAS_ONE_DNN, LARGE, MOST, FewRowsLinear, few_rows_by_one_dnn
from msgrpo_hub.models.plain_forward import PlainForward

pytestmark = pytest.mark.skipif(not HAS_ONE_DNN, reason="this build of torch has no oneDNN")


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def layers(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1024, LARGE // 1024, bias), nn.Linear(LARGE // 1024, 8, bias))


def by_one_dnn(model: nn.Module, x: Tensor, grad: bool = False) -> int:
    """How many of a model's products oneDNN computes."""
    operations = Operations()
    with operations, torch.set_grad_enabled(grad):
        model(x)
    return operations.names.count("mkldnn::_linear_pointwise")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [FEWEST, 17, MOST])
def test_the_product_is_the_same_but_for_rounding(rows: int, bias: bool) -> None:
    model, x = layers(bias), torch.randn(rows, 1, 1024)
    with torch.no_grad():
        expected = model(x)
        with few_rows_by_one_dnn(model):
            assert torch.allclose(model(x), expected, atol=1e-5)
            assert by_one_dnn(model, x) == 1, "of the two layers one is large"


def test_other_products_stay_with_the_default() -> None:
    model, few = layers(), torch.randn(16, 1024)
    with few_rows_by_one_dnn(model):
        assert by_one_dnn(model, few) == 1
        assert by_one_dnn(model, torch.randn(FEWEST - 1, 1024)) == by_one_dnn(model, torch.randn(MOST + 1, 1024)) == 0
        assert by_one_dnn(model, few, grad=True) == 0
    assert by_one_dnn(model, few) == 0, "after the context everything is as before"
    with few_rows_by_one_dnn(half := layers().bfloat16()):
        assert not any(isinstance(layer, FewRowsLinear) for layer in half)


def test_an_exception_inside_leaves_the_layers_as_they_were() -> None:
    model = layers()
    with pytest.raises(KeyError), few_rows_by_one_dnn(model), few_rows_by_one_dnn(model):
        raise KeyError
    assert all(type(layer) is nn.Linear for layer in model)


def test_the_base_of_a_lora_layer_gains_too() -> None:
    model = get_peft_model(layers(), LoraConfig(r=4, target_modules=["0"], init_lora_weights=False))
    x = torch.randn(8, 1, 1024)
    with torch.no_grad():
        expected = model(x)
        with few_rows_by_one_dnn(model):
            assert torch.allclose(model(x), expected, atol=1e-4)
            assert by_one_dnn(model, x) == 1


def large() -> PreTrainedModel:
    """One layer, whose three products of the MLP are large."""
    config = Qwen2Config(vocab_size=64, hidden_size=512, intermediate_size=LARGE // 512, num_hidden_layers=1)
    config.num_attention_heads, config.num_key_value_heads = 4, 2
    model: PreTrainedModel = Qwen2ForCausalLM(config).eval()
    return model


def test_both_engines_act_with_it_and_learn_without() -> None:
    model, ids = large(), torch.zeros(8, 1, dtype=torch.long)
    with acting(model):
        assert any(isinstance(layer, FewRowsLinear) for layer in model.modules())
    with PlainForward(model).acting():
        assert by_one_dnn(model, ids) == 3
    assert by_one_dnn(model, ids) == 0
