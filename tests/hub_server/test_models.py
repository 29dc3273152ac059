"""`transformers` and `peft` load from the Hub what was pushed to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import HfApi

import msgrpo_hub.pocket
from tests.hub_server.client import LOADS_MODELS

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane

warm = LOADS_MODELS

MODEL = Path(msgrpo_hub.pocket.__file__).with_name("model")
PROMPT = [[1, 2, 3, 4]]


def push_base(repo: str) -> None:
    HfApi().create_repo(repo, private=True)
    HfApi().upload_folder(repo_id=repo, folder_path=MODEL, allow_patterns=["*.json", "*.safetensors"])


def push_adapter(base: str, repo: str) -> list[float]:
    """Pushes an adapter that changes the base, and returns what the two together say."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.1)
        said: list[float] = model(torch.tensor(PROMPT)).logits[0, -1].tolist()
    model.push_to_hub(repo, private=True)
    return said


def load_base(repo: str) -> tuple[int, list[float]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(repo)(torch.tensor(PROMPT)).logits
    return len(AutoTokenizer.from_pretrained(repo)), logits[0, -1].tolist()


def load_adapter(repo: str) -> list[float]:
    import torch
    from peft import AutoPeftModelForCausalLM

    with torch.no_grad():
        said: list[float] = AutoPeftModelForCausalLM.from_pretrained(repo)(torch.tensor(PROMPT)).logits[0, -1].tolist()
    return said


@pytest.mark.slow
def test_a_base_and_its_adapter_come_back_as_they_went(hub: Lane) -> None:
    base, adapter = hub.repository(), hub.repository()
    hub.owner.call(push_base, base)
    assert hub.files(base)["model.safetensors"] == (MODEL / "model.safetensors").read_bytes()
    said = hub.owner.call(push_adapter, base, adapter)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(hub.files(adapter))
    assert hub.owner.call(load_adapter, adapter) == said
    length, of_base = hub.owner.call(load_base, base)
    assert length > 0
    assert of_base != said
