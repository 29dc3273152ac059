"""Loading, editing and adapting the folder of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from tests.tiny import adapted


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
    adapted(AutoModelForCausalLM.from_pretrained(base), size=0.1).save_pretrained(folder)
    edit(folder / "adapter_config.json", **changes)
    return folder
