"""Adapters of the built-in base, and the hash of a run of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.evaluation.runner import run_config
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.players.registry import Player

SUITE = Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=1)


def hash_of(player: Player) -> str:
    return run_hash(run_config(player, SUITE, SUITE.tasks[0]))


def adapt(base: str, folder: Path, size: float, **config: Any) -> Path:
    """A LoRA adapter; with size 0 it changes nothing."""
    torch.manual_seed(0)
    settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **config)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(size)
    model.save_pretrained(str(folder))
    return folder
