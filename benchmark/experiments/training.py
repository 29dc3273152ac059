"""Training as a unit of an experiment: a configuration and a seed, for a given number of updates."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from filelock import FileLock

from benchmark.experiments.experiment import Settings, Values
from msgrpo_hub.episode import Episode
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.weights import merged
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.config import TrainConfig, fingerprint, preset
from msgrpo_hub.training.run import train
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.trainer import Trainer

SERIES = (
    *("composite_return", "composite_return_std", "zero_variance_groups", "unreadable_rate"),
    *("entropy", "kl", "gradient_norm"),
)
"""Metrics stored for every update."""


def learning_curve(settings: Settings) -> Values:
    """Trains for some updates and evaluates at equal distances.

    Args:
        settings: `case`, a preset; `settings`, fields that differ from it; `seed`; `updates`; `evaluations`, on the validation
            episodes; optionally `also`, games that the adapter plays after training.

    Returns:
        `curve`: (update, validation reward), the first before training; `seconds`: processor time of all updates; `metrics`: a
        number per update for each of `SERIES`; `test_rewards`: a reward per test episode; `also`: the same for its games.
    """
    fields = {"preset": settings["case"], "seed": settings["seed"], "updates": settings["updates"], **settings["settings"]}
    updates, also = fields["updates"], settings.get("also", [])
    config = configured({**fields, "updates": max(updates, 1)})  # without an update, the base
    trainer = Trainer(config, Accelerator(cpu=True))
    for game in also:
        make_game(game)  # reports a missing package before the training
    curve, seconds = [(0, trainer.evaluate()["validation_reward"])], 0.0
    metrics: dict[str, list[float]] = {name: [] for name in SERIES}
    stops = {round(stop) for stop in np.linspace(0, updates, settings["evaluations"] + 1)}
    for number in range(1, updates + 1):
        began = time.process_time()
        found = trainer.update(number).metrics
        for name, series in metrics.items():
            series.append(float(f"{found[name]:.4g}"))
        seconds += time.process_time() - began
        if number in stops:
            curve.append((number, trainer.evaluate()["validation_reward"]))

    def rewards(*games: str) -> list[float]:
        return [episode.reward for episode in test_episodes(trainer, trainer.config.eval_temperature, *games)]

    values: Values = {"curve": curve, "seconds": round(seconds, 2), "metrics": metrics, "test_rewards": rewards()}
    return values | ({"also": {game: rewards(game) for game in also}} if also else {})


def configured(fields: Settings) -> TrainConfig:
    """A configuration from `preset` and fields that differ from it. By default a run keeps its last weights."""
    values = {"keep": "last", **fields}
    return replace(preset(fields["preset"]), **{name: value for name, value in values.items() if name != "preset"})


def adapter_of(config: TrainConfig, scratch: Path) -> Path:
    """The adapter of a run, trained now if it does not exist."""
    folder = RunFolder(scratch / f"run-{fingerprint(config)[:16]}")
    with FileLock(scratch / f"{folder.path.name}.lock"):  # another process may be training it
        train(config, folder.path, resume=True)
    adapter: Path = folder.adapter
    return adapter


def test_episodes(trainer: Trainer, temperature: float, *games: str) -> list[Episode]:
    """The test episodes of these games, by default of the run's games, sampled at a temperature."""
    agent, indices = replace(trainer.agent, temperature=temperature), range(int(trainer.config.test_episodes))
    with merged(trainer.model):
        return [
            episode
            for name in games or trainer.starts.games
            for episode in play_episodes(make_game(name), agent, [(episode_seed(name, "test", index), 0) for index in indices])
        ]
