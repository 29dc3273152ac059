"""Products of few rows by oneDNN: the same numbers but for rounding, only where they are faster, and only while acting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from msgrpo_hub.models import few_rows
from msgrpo_hub.models.attention import acting
from msgrpo_hub.models.few_rows import FEWEST, HAS_ONE_DNN, LARGE, MOST, FewRowsLinear, JoinedLinear, few_rows_by_one_dnn
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
@pytest.mark.parametrize("rows", [FEWEST[torch.float32], 17, MOST])
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
        assert by_one_dnn(model, torch.randn(1, 1024)) == by_one_dnn(model, torch.randn(MOST + 1, 1024)) == 0
        assert by_one_dnn(model, few, grad=True) == 0
    assert by_one_dnn(model, few) == 0, "after the context everything is as before"
    with few_rows_by_one_dnn(double := layers().double()):
        assert not any(isinstance(layer, FewRowsLinear) for layer in double)


def test_weights_that_change_inside_the_context_are_copied_anew() -> None:
    model, x = layers(), torch.randn(8, 1024)
    changes: list[Callable[[nn.Parameter], object]] = [
        lambda weight: weight.mul_(2),
        lambda weight: setattr(weight, "data", weight.detach().clone().neg_()),  # as LoRA is merged
        lambda weight: weight.zero_(),
    ]
    with torch.no_grad(), few_rows_by_one_dnn(model):
        for change in changes:
            model(x)
            change(model[0].weight)
            expected = functional.linear(functional.linear(x, *model[0].parameters()), *model[1].parameters())
            assert torch.allclose(model(x), expected, atol=1e-5)


def test_copies_have_limited_room_and_end_with_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(layers(), layers()[:1]), torch.randn(8, 1024)
    first, second = model[0][0], model[1][0]
    monkeypatch.setattr(few_rows, "ROOM", first.weight.nbytes)
    with torch.no_grad(), few_rows_by_one_dnn(model):
        assert first.copy is None, "nothing is copied before it is needed"
        first(x)
        second(x)
        assert (first.copies, second.copies) == (True, False)
        assert first.copy[1].is_mkldnn
        assert second.copy is None
    assert not {"copy", "copies"} & (vars(first).keys() | vars(second).keys())


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bfloat16 on this processor")
@pytest.mark.parametrize("rows", [FEWEST[torch.bfloat16], 17, MOST])
def test_bfloat16_is_copied_too(rows: int) -> None:
    model, x = layers().bfloat16(), torch.randn(rows, 1024).bfloat16()
    with torch.no_grad():
        expected = model(x)
        with few_rows_by_one_dnn(model):
            assert torch.allclose(model(x), expected, atol=1e-2)
            assert by_one_dnn(model, x) == 1
            assert model[0].copy[1].dtype == torch.bfloat16


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


def beside(*outputs: int) -> nn.ModuleList:
    """Layers of 1024 inputs."""
    torch.manual_seed(0)
    return nn.ModuleList(nn.Linear(1024, size) for size in outputs)


@pytest.mark.parametrize(("outputs", "products"), [((8, 4, 4), 0), ((LARGE // 1024, 4, 4), 1), ((LARGE // 2048 + 1,) * 2, 0)])
@pytest.mark.parametrize("rows", [1, 17, MOST + 1])
def test_joined_layers_have_their_outputs_side_by_side(outputs: tuple[int, ...], products: int, rows: int) -> None:
    """Few rows are one product by oneDNN if a layer is large. Middling layers stay apart: nothing holds their copy."""
    apart, x = beside(*outputs), torch.randn(rows, 1, 1024)
    with torch.no_grad(), few_rows_by_one_dnn(apart):
        expected = torch.cat([functional.linear(x, layer.weight, layer.bias) for layer in apart], -1)
        together = JoinedLinear(cast("list[nn.Linear]", list(apart)))
        with Operations() as operations:
            assert torch.allclose(together(x), expected, atol=1e-5)
    few = FEWEST[torch.float32] <= rows <= MOST
    assert operations.names.count("mkldnn::_linear_pointwise") == products * few
    assert operations.names.count("aten::linear") + operations.names.count("aten::addmm") <= len(outputs)


def test_layers_that_may_not_be_copied_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, x = beside(LARGE // 1024, LARGE // 1024), torch.randn(8, 1024)
    monkeypatch.setattr(few_rows, "ROOM", 1)
    with torch.no_grad(), few_rows_by_one_dnn(apart):
        together = JoinedLinear(cast("list[nn.Linear]", list(apart)))
        assert torch.allclose(together(x), torch.cat([layer(x) for layer in apart], -1), atol=1e-5)
        assert together._copy is None


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
