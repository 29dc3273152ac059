"""The guide's way to merge an adapter keeps what the model computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.models.loading import load
from tests.models.test_foreign_adapters import published
from tests.tiny import MakeFolder

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"
[MERGE] = [block.partition("```")[0] for block in GUIDE.read_text().split("```python\n")[1:] if "merge_and_unload" in block]
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def log_probs(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(IDS).logits.log_softmax(-1)
    return output


@pytest.mark.parametrize("targets", [["lm_head", "q_proj"], ["embed_tokens", "q_proj"], ["q_proj", "up_proj"]], ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_model_saved_and_loaded_has_the_log_probabilities_of_the_adapter(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str], tied: bool
) -> None:
    base = make_folder("qwen2", tie_word_embeddings=tied)
    expected = log_probs(load(published(base, tmp_path / "runs" / "lake" / "adapter", target_modules=targets)).model)
    monkeypatch.chdir(tmp_path)
    exec(MERGE, {})
    torch.testing.assert_close(log_probs(AutoModelForCausalLM.from_pretrained("runs/lake/merged")), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(log_probs(load(tmp_path / "runs" / "lake" / "merged").model), expected, atol=1e-5, rtol=0)
