"""An adapter and its base, loaded together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from tests.models.loading import load, one_line, rngs, save_adapter
from tests.tiny import MakeFolder

pytestmark = pytest.mark.lowest


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(torch.tensor([[5, 6, 7]])).logits
    return output


def test_an_adapter_alone_and_an_adapter_on_its_base_are_the_same_model(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    alone, together = load(adapter), load(qwen2_folder, adapter=str(adapter))
    assert isinstance(alone.model, PeftModel)
    assert torch.equal(logits(alone.model), logits(together.model))
    assert not torch.allclose(logits(alone.model), logits(load(qwen2_folder).model))
    with alone.model.disable_adapter():
        assert torch.equal(logits(alone.model), logits(load(qwen2_folder).model))
    assert not alone.model.training


def test_the_adapter_changes_the_replies(qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    agent = load(adapter, max_new_tokens=1, temperature=0.0)
    (reply,) = agent.complete(prompts[:1], rngs(1))
    with torch.no_grad():
        expected = agent.model(torch.tensor([reply.prompt_ids])).logits[0, -1].log_softmax(-1)
    assert reply.log_probs == (pytest.approx(expected.max().item(), abs=1e-5),)


@pytest.mark.parametrize("other", [{"hidden_size": 64}, {"num_hidden_layers": 1}, {"model_type": "phi3"}], ids=str)
def test_an_adapter_that_does_not_fit_its_base_is_refused(
    make_folder: MakeFolder, qwen2_folder: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    base = make_folder(**{"model_type": "qwen2", **other})
    with pytest.raises(UserError, match="does not fit") as error:
        load(base, adapter=str(adapter))
    assert str(adapter) in one_line(error)


def test_an_adapter_on_an_adapter_is_refused(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    with pytest.raises(UserError, match="is a LoRA adapter, not a base"):
        load(adapter, adapter=str(adapter))


def test_an_adapter_that_names_no_base_is_refused(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter", base_model_name_or_path=None)
    with pytest.raises(UserError, match="does not name its base"):
        load(adapter)
    assert isinstance(load(qwen2_folder, adapter=str(adapter)).model, PeftModel)
