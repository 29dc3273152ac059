"""A push and the Space refuse the same adapter settings as the gate of `downloads`, in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import players
import pytest
import torch
from safetensors.torch import save_file

from msgrpo_hub.downloads.fetching import list_files
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.adapters import read_adapter

PLAIN = {"peft_type": "LORA", "base_model_name_or_path": "msgrpo_hub/pocket/model", "r": 8, "target_modules": ["q_proj"]}
REFUSED: dict[str, dict[str, Any]] = {
    "another type": {"peft_type": "PROMPT_TUNING"},
    "a configuration of megatron": {"megatron_config": {"a": 1}},
    "a tokenizer's arguments": {"tokenizer_kwargs": {"a": 1}},
    "another way to begin": {"init_lora_weights": "pissa"},
    "whole layers by a regular expression": {"modules_to_save": ["(a+)+$"]},
    "too many new words": {"trainable_token_indices": [1] * 10_001},
    "a giant rank": {"r": 10**6},
    "a giant rank of a layer": {"rank_pattern": {"q_proj": 10**6}},
    "a regular expression of many characters": {"target_modules": "a" * 10_000},
    "a path as a revision": {"revision": "../../etc"},
    "what nobody knows": {"invented": {"a": 1}},
}


def refusal(ask: Callable[[], object]) -> str:
    try:
        ask()
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"lora_B": torch.ones(1)}, tmp_path / "adapter_model.safetensors")
    return tmp_path


@pytest.mark.parametrize("changes", [{}, *REFUSED.values()], ids=["sound", *REFUSED])
def test_a_push_and_the_space_refuse_exactly_what_the_gate_refuses(changes: dict[str, Any], folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps(PLAIN | changes))
    gate = refusal(lambda: list_files(str(folder)).read("adapter_config.json"))
    assert bool(gate) == bool(changes)
    assert refusal(lambda: read_adapter(folder)) == gate
    assert refusal(lambda: players.pinned(str(folder))) == gate
