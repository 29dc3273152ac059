"""The context of a model: its limit by family, and the check of prompts and replies before any weights are loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from transformers import (
    BloomConfig,
    FalconConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    RwkvConfig,
)

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat, TaggedFormat
from msgrpo_hub.games import make_game
from msgrpo_hub.models.context import context_limit
from msgrpo_hub.players.sample_play import longest_prompts
from tests.models.loading import edit, load, refused

LAKE, SNAKE = make_game("FrozenLake-NotSlippery-v1"), make_game("Snake-Solo-v1")
HISTORY = TaggedFormat(name="two-turns", history=2)


def rope(kind: str, factor: float, original: int | None = None) -> dict[str, Any]:
    extended = {"original_max_position_embeddings": original} if original else {}
    return {"rope_type": kind, "rope_theta": 1e4, "factor": factor, **extended}


LLAMA_3 = {**rope("llama3", 8.0, 8192), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
GEMMA_3 = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": rope("linear", 8.0)}
LIMITS: dict[str, tuple[PretrainedConfig, int | None]] = {
    "rotary": (Qwen2Config(max_position_embeddings=2048), 2048),
    "a window is no limit": (MistralConfig(max_position_embeddings=2048, sliding_window=64), 2048),
    "n_positions": (GPT2Config(n_positions=512), 512),
    "ALiBi": (BloomConfig(), None),
    "ALiBi as a choice": (FalconConfig(alibi=True), None),
    "state space": (MambaConfig(), None),
    "recurrent": (RwkvConfig(context_length=64), None),
    "linear scaling": (LlamaConfig(max_position_embeddings=4096, rope_parameters=rope("linear", 4.0)), 16384),
    "YaRN on an unchanged length": (Qwen2Config(max_position_embeddings=32768, rope_parameters=rope("yarn", 4.0, 32768)), 131072),
    "YaRN in the length already": (LlamaConfig(max_position_embeddings=163840, rope_parameters=rope("yarn", 40.0, 4096)), 163840),
    "Llama 3.1": (LlamaConfig(max_position_embeddings=131072, rope_parameters=LLAMA_3), 131072),
    "one layer type scaled": (Gemma3TextConfig(max_position_embeddings=131072, rope_parameters=GEMMA_3), 131072),
}


@pytest.mark.parametrize(("config", "limit"), LIMITS.values(), ids=LIMITS)
def test_the_limit_is_the_number_of_positions_that_a_family_has(config: PretrainedConfig, limit: int | None) -> None:
    assert context_limit(config) == limit


def expected(prompt_format: PromptFormat) -> Callable[[PromptFormat | None], list[Prompt]]:
    return lambda own: longest_prompts([LAKE, SNAKE], own or prompt_format)


def with_positions(folder: Path, positions: int) -> Path:
    edit(folder / "config.json", max_position_embeddings=positions)
    return folder


def refusal(folder: Path, prompt_format: PromptFormat, max_new_tokens: int) -> str:
    """The refusal of a folder, whose weights are not loaded."""
    with patch("transformers.PreTrainedModel.from_pretrained", side_effect=AssertionError("the weights are loaded")):
        return refused(load, folder, expected_prompts=expected(prompt_format), max_new_tokens=max_new_tokens)


@pytest.mark.parametrize("prompt_format", [THINK_ACTION, HISTORY], ids=lambda chosen: chosen.name)
def test_replies_too_long_are_refused_before_loading_with_the_largest_limit_that_fits(
    folder: Path, prompt_format: PromptFormat
) -> None:
    said = refusal(with_positions(folder, 1000), prompt_format, 900)
    assert ("and 2 past replies and a reply of up to 900" in said) == (prompt_format is HISTORY)
    fits = int(re.findall(r"--max-new-tokens (\d+)", said)[0])
    assert "1000 positions" in refusal(folder, prompt_format, fits + 1)
    load(folder, expected_prompts=expected(prompt_format), max_new_tokens=fits)


def test_a_prompt_too_long_for_any_reply_is_refused_before_loading(folder: Path) -> None:
    said = refusal(with_positions(folder, 200), THINK_ACTION, 64)
    assert re.search(r"do not fit into the 200 positions of .*: expected a model with a longer context$", said)
    said = refusal(folder, HISTORY, 64)
    assert said.endswith("a longer context, or a prompt format with less history than 'two-turns' (--prompt-format)")
