"""One unit of the main result: a run of a preset with a seed, or a player that is not trained here, on the test episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmark.experiments.experiment import Settings, Values
from benchmark.experiments.main_result.supervised import taught
from benchmark.experiments.training import adapter_of, configured
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players import can_play, make_player
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json

SAMPLED = PlayerSettings(temperature=1.0)
"""Replies are sampled as in training."""


def run(settings: Settings, scratch: Path) -> Values:
    """The player, and game → what it played on the test episodes; of a run also its seconds and its episodes of training."""
    if "teacher" in settings:
        return taught(settings)
    if "player" in settings:
        name = "pocket" if settings["player"] == "base" else settings["player"]
        return {"player": settings["player"], "games": {settings["game"]: played(name, settings["game"], settings["episodes"])}}
    adapter = trained(settings["stages"], settings["seed"], scratch)
    summary = read_json(adapter.parent / "summary.json", "what a run leaves")
    config = summary["config"]
    games = [config["game"], *settings.get("also", [])]
    return {
        "player": f"trained: {settings['run']}",
        "games": {game: played(str(adapter), game, settings["episodes"]) for game in games},
        "seconds": summary["seconds_acting"] + summary["seconds_training"],
        "training_episodes": config["updates"] * config["groups"] * config["group_size"],
    }


def trained(stages: Sequence[Settings], seed: int, scratch: Path) -> Path:
    """The adapter of the last of some runs, each of which begins with the adapter of the one before."""
    adapter: Path | None = None
    for stage in stages:
        config = configured({**stage, "seed": seed})
        adapter = adapter_of(replace(config, init_adapter=str(adapter)) if adapter else config, scratch)
    assert adapter
    return adapter


def played(name: str, game_id: str, episodes: int) -> Values:
    """The rewards of a player's test episodes, sampled at temperature 1, and where the game is solved without the ice's luck."""
    game = make_game(game_id)
    if not can_play(name, game):
        return {"rewards": []}
    found = play_episodes(
        game, make_player(name, SAMPLED), [(episode_seed(game_id, "test", index), 0) for index in range(episodes)]
    )
    return {"rewards": [episode.reward for episode in found], "luck_adjusted": luck_adjusted(found)}


def luck_adjusted(episodes: Sequence[Episode]) -> list[float]:
    """V*(s₀) − Σ regrets of each episode; empty in games that are not solved."""
    scores = [judged(episode)[1].luck_adjusted for episode in episodes]
    return [round(score, 6) for score in scores if score is not None]
