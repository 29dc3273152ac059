"""Tiny models of seven families with random weights and a real tokenizer, saved and loaded as any model of the Hub is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.pocket.tokenizer import build_tokenizer
from tests.models.loading import MakeFolder

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "llama": {},
    "gemma2": {"head_dim": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"head_dim": 8, "sliding_window": None},
    "phi3": {},
}
GAMES = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")


@pytest.fixture(scope="session")
def prompts() -> list[Prompt]:
    """Nine prompts of two games; among those of a game two are equal."""
    states = [(make_game(name), make_game(name).initial_state(np.random.default_rng(s))) for name in GAMES for s in (0, 1, 2, 3)]
    return [build_prompt(game, state) for game, state in [*states, states[0]]]


@pytest.fixture(scope="session")
def tokenizer(prompts: list[Prompt]) -> PreTrainedTokenizerFast:
    texts = [text for prompt in prompts for text in (prompt.system, prompt.user)]
    return build_tokenizer(texts, 400)


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> MakeFolder:
    """(model type, seed, options of its config) → a folder with weights, config and tokenizer."""

    def make(model_type: str, seed: int = 0, **options: Any) -> Path:
        settings: dict[str, Any] = {
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 1024,
            "initializer_range": 0.2,  # large enough that what is attended to matters
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        config = CONFIG_MAPPING[model_type](**{**settings, **FAMILIES.get(model_type, {}), **options})
        torch.manual_seed(seed)
        folder = tmp_path_factory.mktemp(model_type)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, make_folder: MakeFolder) -> LanguageModel:
    """A model of each family in turn."""
    return LanguageModel.from_pretrained(str(make_folder(request.param)), max_new_tokens=8)


@pytest.fixture(scope="session")
def qwen2_folder(make_folder: MakeFolder) -> Path:
    return make_folder("qwen2")


@pytest.fixture
def folder(qwen2_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Qwen2, to be changed."""
    return Path(shutil.copytree(qwen2_folder, tmp_path / "model"))
