"""The built-in base as it ships: small, no better than random play, and accurate about the board."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmark.pocket.build import BuildConfig, make_model, make_tokenizer, train
from benchmark.pocket.card import BOARD_KINDS, ask, render
from benchmark.pocket.tasks import GameVariant
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.scripted import choose_random_legal, choose_random_safe
from msgrpo_hub.rollout import play_episodes

pytestmark = pytest.mark.slow

GAMES = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")


@pytest.fixture(scope="module")
def pocket() -> LanguageModel:
    return LanguageModel.from_pretrained("pocket", max_new_tokens=32)


def test_it_is_small_enough_to_ship(pocket: LanguageModel) -> None:
    assert sum(parameter.numel() for parameter in pocket.model.parameters()) <= 2_000_000
    assert sum(file.stat().st_size for file in pocket_path().iterdir()) <= 8_000_000
    assert pocket.model.config.model_type == "qwen2"


@pytest.mark.parametrize("game_id", GAMES)
def test_it_reads_the_board_on_held_out_states(pocket: LanguageModel, game_id: str) -> None:
    game = make_game(game_id)
    scores = ask(pocket, [GameVariant(game, game.actions)] * 25, seed=77)
    assert all(score >= 0.95 for kind, score in scores.items() if kind in BOARD_KINDS), scores


@pytest.mark.parametrize("game_id", GAMES)
def test_it_plays_no_better_than_random_legal_and_safe_players_and_keeps_the_format(pocket: LanguageModel, game_id: str) -> None:
    game = make_game(game_id)
    episode_keys = [(episode_seed(game.id, "test", index), 0) for index in range(60)]
    episodes = play_episodes(game, pocket, episode_keys)
    steps = [step for episode in episodes for step in episode.steps]
    assert sum(step.action is not None for step in steps) / len(steps) >= 0.99
    mean = sum(episode.reward for episode in episodes) / len(episodes)
    choosers = (choose_random_legal, choose_random_safe)
    random = [sum(e.reward for e in play_episodes(game, ScriptedPolicy(c), episode_keys)) / len(episode_keys) for c in choosers]
    assert mean <= max(random) + 0.35
    if game_id.startswith("FrozenLake"):
        assert mean <= 0.15


@pytest.mark.long
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_the_build_is_deterministic(tmp_path: Path, precision: str) -> None:
    def built(config: BuildConfig) -> str:
        tokenizer = make_tokenizer(config)
        model = make_model(config, tokenizer)
        config.output_dir.mkdir(exist_ok=True)
        train(config, model, tokenizer)
        digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return digest.hexdigest()

    threads = torch.get_num_threads()
    config = BuildConfig(output_dir=tmp_path / "a", steps=4, trees=2, states=1, threads=threads, precision=precision)
    assert built(config) == built(replace(config, output_dir=tmp_path / "b"))


def test_the_card_states_measured_numbers_only() -> None:
    scores = json.loads((pocket_path() / "scores.json").read_text())
    assert (pocket_path() / "README.md").read_text() == render(scores, "python -m benchmark.pocket.build OUTPUT_DIR")
