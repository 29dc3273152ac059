"""Loading, editing and adapting the folder of a tiny model; chat templates in the style of well-known models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from tests.tiny import adapted

TEMPLATES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "templates").glob("*.jinja"))}
"""Shortened to the parts that decide the text of a prompt."""


def load(folder: Path, **options: Any) -> LanguageModel:
    return LanguageModel.from_pretrained(str(folder), **options)


def rngs(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(count)]


def refused(action: Callable[..., object], *given: Any, **options: Any) -> str:
    """The message, on one line, with which an action refuses its arguments."""
    with pytest.raises(UserError) as error:
        action(*given, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    return folder


def with_template(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a chat template and the special tokens that it writes."""
    tokenizer = build_tokenizer([], 300)
    tokenizer.bos_token, tokenizer.chat_template = "<|pad|>", template
    return tokenizer


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(torch.tensor([[5, 6, 7, 8, 9]])).logits
    return output


def save_adapter(base: Path, folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A LoRA adapter with random weights in all its matrices, as `peft` saves it; `changes` edit its settings."""
    torch.manual_seed(seed)
    adapted(AutoModelForCausalLM.from_pretrained(base), size=0.1).save_pretrained(folder)
    edit(folder / "adapter_config.json", **changes)
    return folder


def published(base: Path, folder: Path, **options: Any) -> Path:
    """An adapter whose every trained weight differs from the base, as PEFT saves it."""
    torch.manual_seed(1)
    model = adapted(AutoModelForCausalLM.from_pretrained(base), **options)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn_like(weight))
    model.save_pretrained(folder)
    return folder
