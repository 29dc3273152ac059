"""The built-in adapters: players by name, pinned by their hash, without a path of this machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.cli import parse
from msgrpo_hub.cli.training import train_config
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import adapters_path, built_in_adapters, content_hash, located, pocket_path, public_name
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players import PlayerSettings, make_player
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.config import parse_games

LARGEST = 700_000
"""Bytes of an adapter."""


@pytest.mark.parametrize("name", built_in_adapters())
def test_a_built_in_adapter_is_that_of_its_folder_on_the_built_in_base_by_its_hash(name: str) -> None:
    sources = resolve(name)
    assert (sources.base, sources.base_commit) == (str(pocket_path()), content_hash(pocket_path()))
    assert (sources.adapter, sources.adapter_commit) == (located(name), content_hash(adapters_path() / name))
    assert sources.identity()["adapter"] == name == public_name(located(name))
    assert str(Path.home()) not in json.dumps(sources.identity())


@pytest.mark.parametrize("name", built_in_adapters())
def test_a_built_in_adapter_is_small_and_has_a_valid_command_and_a_base_without_a_path(name: str) -> None:
    folder = adapters_path() / name
    about = json.loads((adapters_path() / f"{name}.json").read_text(encoding="utf-8"))
    program, *arguments = shlex.split(about["command"])
    assert program == "msgrpo"
    assert about["game"] in parse_games(train_config(parse(arguments)).game)
    assert sum(path.stat().st_size for path in folder.iterdir()) < LARGEST
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert settings["base_model_name_or_path"] == "msgrpo_hub/pocket/model"


def test_the_adapter_of_the_lake_crosses_it() -> None:
    game = make_game("FrozenLake-NotSlippery-v1")
    keys = [(episode_seed(game.id, "validation", index), 0) for index in range(50)]
    settings = PlayerSettings(temperature=1.0)
    rewards = {
        name: sum(episode.reward for episode in play_episodes(game, make_player(name, settings), keys))
        for name in ("pocket", "lake", "pocket+lake")
    }
    assert rewards["lake"] == rewards["pocket+lake"]
    assert rewards["lake"] >= 40 > 15 > rewards["pocket"]


def test_the_adapter_of_the_slippery_lake_plays_it_better_than_that_of_the_dry_one() -> None:
    """By rewards without the luck of the ice, from exact regrets: more than two standard errors, board by board."""
    game, settings = make_game("FrozenLake-Slippery-v1"), PlayerSettings(temperature=1.0)
    keys = [(episode_seed(game.id, "validation", index), 0) for index in range(60)]
    played = [play_episodes(game, make_player(name, settings), keys) for name in ("lake-slippery", "lake")]
    gained = np.subtract(*([judged(episode)[1].luck_adjusted for episode in episodes] for episodes in played))
    assert gained.mean() > 2 * gained.std(ddof=1) / len(keys) ** 0.5


@pytest.mark.slow
def test_a_run_can_begin_with_a_built_in_adapter(tmp_path: Path) -> None:
    config = TrainConfig(init_adapter="lake", updates=1, groups=1, group_size=2, selected_per_group=2, eval_every=0)
    summary = train(config, tmp_path)
    assert summary["config"]["init_adapter"] == "lake"
    provenance = json.loads((tmp_path / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["init_adapter_commit"] == content_hash(adapters_path() / "lake")
    assert summary["adapter"]["success"] > 0.7
