"""Tiny models of seven families with random weights and a real tokenizer, saved and loaded like models of the Hub."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from tests.tiny import FAMILIES, MakeFolder, save_model, tokenizer_of

GAMES = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")


@pytest.fixture(scope="session")
def prompts() -> list[Prompt]:
    """Nine prompts of two games; two prompts of each game are equal."""
    states = [(make_game(name), make_game(name).initial_state(np.random.default_rng(s))) for name in GAMES for s in (0, 1, 2, 3)]
    return [build_prompt(game, state) for game, state in [*states, states[0]]]


@pytest.fixture(scope="session")
def tokenizer(prompts: list[Prompt]) -> PreTrainedTokenizerFast:
    return tokenizer_of(prompts, 400)


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> MakeFolder:
    """Makes each model once."""

    @functools.cache
    def make(model_type: str, seed: int = 0, **options: Any) -> Path:
        return save_model(tmp_path_factory.mktemp(model_type), tokenizer, model_type, seed, **options)

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
    """A copy of the tiny Qwen2 that a test may change."""
    return Path(shutil.copytree(qwen2_folder, tmp_path / "model"))
