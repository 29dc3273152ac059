"""Loading, editing and adapting the folder of a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel

MakeFolder = Callable[..., Path]


def load(folder: Path, **options: Any) -> LanguageModel:
    return LanguageModel.from_pretrained(str(folder), **options)


def rngs(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(count)]


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# ---- adapters


def save_adapter(base: Path, folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A LoRA adapter with random weights in all its matrices, as `peft` saves it."""
    torch.manual_seed(seed)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    edit(folder / "adapter_config.json", **changes)
    return folder
