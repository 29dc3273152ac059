"""Merged weights and copies for few rows: the same policy, faster; the base is restored bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM

from msgrpo_hub.models import weights
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
from tests.models.loading import load, logits, published
from tests.tiny import MakeFolder, adapted, tiny_model


def lora_model(dtype: torch.dtype = torch.float32, **options: Any) -> PeftModel:
    return adapted(tiny_model(vocab_size=64, initializer_range=0.02).to(dtype), 0.3, **options)


def test_the_base_is_restored_bit_for_bit_even_after_an_error() -> None:
    model = lora_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(AssertionError), merged(model):
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.requires_grad for name, weight in model.named_parameters() if "lora_" in name)


@pytest.mark.parametrize("model", [lora_model(torch.bfloat16), lora_model(use_dora=True)], ids=["bfloat16", "DoRA"])
def test_layers_that_cannot_be_merged_exactly_stay_unchanged(model: PeftModel) -> None:
    before = weights_version(model)
    with merged(model):
        assert weights_version(model) == before


def with_own_head() -> PeftModel:
    model = adapted(tiny_model("llama", vocab_size=300), target_modules=["q_proj"], modules_to_save=["lm_head"])
    with torch.no_grad():
        model.get_base_model().lm_head.modules_to_save["default"].weight += 1
    return model


@pytest.mark.parametrize("make", [adapted_model, with_own_head], ids=["LoRA", "a head of its own"])
def test_without_its_adapter_a_model_is_its_base_and_has_the_adapter_back_even_after_an_error(make: Any) -> None:
    model = make()
    with_it = logits(model)
    with model.disable_adapter():
        base = logits(model)
    assert not torch.allclose(with_it, base, atol=1e-3)
    with without_adapter(model):
        assert torch.equal(logits(model), base)
        with without_adapter(model):
            pass
        assert torch.equal(logits(model), base), "the outer context still holds"
        assert not torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), without_adapter(model):
        _ = 1 / 0
    assert torch.equal(logits(model), with_it)
    assert all(parameter.requires_grad for name, parameter in model.named_parameters() if "lora_B.default" in name)


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
    model, x = nn.Sequential(layers()[0], layers()[0]), torch.randn(8, 1024)
    monkeypatch.setattr(weights, "COPIED", model[0].weight.nbytes)
    with few_rows_by_one_dnn(model):
        model[0](x).sum().backward()
        assert model[0].weight.grad is not None
        assert model[0].copy is None
        with torch.no_grad():
            expected = [functional.linear(x, layer.weight, layer.bias) for layer in model]
            assert all(torch.allclose(layer(x), y, atol=1e-5) for layer, y in zip(model, expected, strict=True))
        assert [layer.copy is None for layer in model] == [False, True]


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"
[MERGE] = [block.partition("```")[0] for block in GUIDE.read_text().split("```python\n")[1:] if "merge_and_unload" in block]


@pytest.mark.parametrize("targets", [["lm_head", "q_proj"], ["embed_tokens", "q_proj"], ["q_proj", "up_proj"]], ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_model_saved_and_loaded_has_the_log_probabilities_of_the_adapter(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str], tied: bool
) -> None:
    base = make_folder("qwen2", tie_word_embeddings=tied)
    expected = logits(load(published(base, tmp_path / "runs" / "lake" / "adapter", target_modules=targets)).model)
    monkeypatch.chdir(tmp_path)
    exec(MERGE, {})
    for model in (AutoModelForCausalLM.from_pretrained("runs/lake/merged"), load(tmp_path / "runs" / "lake" / "merged").model):
        torch.testing.assert_close(logits(model).log_softmax(-1), expected.log_softmax(-1), atol=1e-5, rtol=0)
