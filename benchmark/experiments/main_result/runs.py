"""One unit of the main result: a run of a preset with a seed, another way to train, or a player that is not trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmark.experiments.experiment import HERE, Settings, Values
from benchmark.experiments.main_result.ceilings import CEILING, ceiling
from benchmark.experiments.main_result.supervised import taught
from benchmark.experiments.rows import stored
from benchmark.experiments.training import adapter_of, configured, test_episodes
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players import can_play, make_player
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.training.config import stored_config

TRAINING, COOLER = 1.0, 0.5
"""Sampling temperatures: that of training, and that of the evaluation in the authors' later experiments."""


def run(settings: Settings, scratch: Path) -> Values:
    """The player, and game → what it played on the test episodes, by a model also cooler; how much a trained one learned from."""
    if "teacher" in settings:
        return supervised(settings)
    if "dqn" in settings:
        return dqn(settings, scratch)
    if "trl" in settings:
        return with_trl(settings, scratch)
    if "player" in settings:
        name, game = settings["player"], settings["game"]
        if name == "base":
            return {"player": name, **sampled("pocket", [game], settings["episodes"])}
        plays = ceiling if name.startswith(CEILING) else played
        return {"player": name, "games": {game: plays(name, game, settings["episodes"])}}
    adapter = trained(settings["stages"], settings["seed"], scratch)
    summary = read_json(adapter.parent / "summary.json", "what a run leaves")
    config = stored_config(adapter.parent / "config.toml")
    games = [config.game, *settings.get("also", [])]
    return {
        "player": f"trained: {settings['run']}",
        **sampled(str(adapter), games, settings["episodes"]),
        "seconds": seconds_of(summary),
        "training_episodes": config.episodes(config.updates),
    }


def supervised(settings: Settings) -> Values:
    """The preset's adapter, taught the moves of the best player."""
    config, trainer = taught(settings)
    return {
        "player": f"taught by {settings['teacher']}",
        "games": {config.game: scores(test_episodes(trainer, TRAINING))},
        "cooler": {config.game: scores(test_episodes(trainer, COOLER))},
        "training_episodes": config.episodes(config.updates),
    }


def dqn(settings: Settings, scratch: Path) -> Values:
    """A DQN of the benchmark, trained for so many environment steps; of its checkpoints the best on validation episodes."""
    from benchmark.dqn.train import train_dqn  # stable-baselines3 is an extra

    game, steps, seed = settings["dqn"], settings["steps"], settings["seed"]
    folder = scratch / f"dqn-{game}-{steps}-seed{seed}"
    if not (folder / "trained").exists():
        train_dqn(game, folder, steps, seed)
        (folder / "trained").touch()
    return {
        "player": f"DQN, {steps:,} steps",
        "games": {game: played(f"dqn:{folder}", game, settings["episodes"])},
        "environment_steps": steps,
    }


def with_trl(settings: Settings, scratch: Path) -> Values:
    """TRL's GRPO on the same base with the settings of a preset, for as many seconds as our run with the same seed took."""
    from benchmark.experiments.main_result.with_trl import grpo  # an extra

    config = configured({**settings["stages"][0], "seed": settings["seed"]})
    folder = scratch / f"trl-{settings['trl']}-seed{settings['seed']}-steps"
    learned = grpo(config, our_seconds(settings, scratch), folder)
    return {"player": "TRL GRPO, equal seconds", **sampled(str(folder), [config.game], settings["episodes"]), **learned}


def unit_of(name: str, seed: int) -> str:
    """The unit of a run with a seed."""
    return f"{name.replace(' ', '-')}-seed{seed}"


def our_seconds(settings: Settings, scratch: Path) -> float:
    """Of our run with the same stages and seed: its row's processor seconds, evaluation included, or those of a new run."""
    name, seed = settings["trl"], settings["seed"]
    row = stored(HERE / "main_result").get(unit_of(name, seed))
    if row and row["settings"]["stages"] == settings["stages"]:
        return float(row["cpu_seconds"])
    return seconds_of(read_json(trained(settings["stages"], seed, scratch).parent / "summary.json", "what a run leaves"))


def seconds_of(summary: Mapping[str, Any]) -> float:
    """The seconds of a run's updates."""
    return float(summary["seconds_acting"] + summary["seconds_training"])


def trained(stages: Sequence[Settings], seed: int, scratch: Path) -> Path:
    """The adapter of the last of some runs, each of which begins with the adapter of the one before."""
    adapter: Path | None = None
    for stage in stages:
        if "teacher" in stage and "taught" not in stage:  # no run, but an adapter that is taught before one
            adapter = taught_adapter({**stage, "seed": seed, "episodes": 0}, scratch)
            continue
        config = configured({**stage, "seed": seed})
        adapter = adapter_of(replace(config, init_adapter=str(adapter)) if adapter else config, scratch)
    assert adapter
    return adapter


def taught_adapter(settings: Settings, scratch: Path) -> Path:
    """The adapter that a teacher leaves, which is taught unless it is there."""
    folder = scratch / f"taught-{settings['game']}-{settings['updates']}-seed{settings['seed']}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            new = folder.with_suffix(".new")
            taught(settings)[1].model.save_pretrained(str(new))
            new.rename(folder)
    return folder


def sampled(name: str, games: Sequence[str], episodes: int) -> Values:
    """What a model plays at the temperature of training, as `games`, and at a lower one, as `cooler`."""
    return {
        key: {game: played(name, game, episodes, temperature) for game in games}
        for key, temperature in (("games", TRAINING), ("cooler", COOLER))
    }


def played(name: str, game_id: str, episodes: int, temperature: float = TRAINING) -> Values:
    """The rewards of a player's test episodes, and where the game is solved those without the ice's luck."""
    game = make_game(game_id)
    if not can_play(name, game):
        return {"rewards": []}
    player = make_player(name, PlayerSettings(temperature=temperature))
    return scores(play_episodes(game, player, [(episode_seed(game_id, "test", index), 0) for index in range(episodes)]))


def scores(episodes: Sequence[Episode]) -> Values:
    """Their rewards, and V*(s₀) − Σ regrets of each; the second is empty in games that are not solved."""
    adjusted = [judged(episode)[1].luck_adjusted for episode in episodes]
    return {
        "rewards": [episode.reward for episode in episodes],
        "luck_adjusted": [round(score, 6) for score in adjusted if score is not None],
    }
