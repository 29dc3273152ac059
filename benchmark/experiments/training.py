"""Training as a unit of an experiment: a configuration and a seed, run for a given number of updates."""

from __future__ import annotations

import time
from collections.abc import Callable
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
"""Metrics that are kept of every update."""


def learning_curve(settings: Settings, scratch: Path) -> Values:  # noqa: ARG001
    """Trains for some updates, and evaluates in between.

    Args:
        settings: a preset as `case`, `settings` (fields of the configuration beside it), `seed`, the number of `updates`, and
            that of `evaluations` on the validation episodes. `also` may name games that the adapter plays in the end without
            having been trained on them.
        scratch: not used.

    Returns:
        `curve`: (update, validation reward), the first before training; `seconds`, the processor time of all updates; the
        `metrics` of `SERIES`, one number per update; `test_rewards` of the trained adapter, one per test episode, and those of
        the games of `also`.
    """
    fields = {"preset": settings["case"], "seed": settings["seed"], "updates": settings["updates"], **settings["settings"]}
    updates = fields["updates"]
    config = configured({**fields, "updates": max(updates, 1)})  # without an update, the base
    trainer = Trainer(config, Accelerator(cpu=True))
    for game in settings.get("also", []):
        make_game(game)  # one that needs a package says so now
    metrics: dict[str, list[float]] = {name: [] for name in SERIES}

    def update(number: int) -> None:
        found = trainer.update(number).metrics
        for name, series in metrics.items():
            series.append(float(f"{found[name]:.4g}"))

    curve, seconds = drawn(updates, settings["evaluations"], update, lambda: trainer.evaluate()["validation_reward"])
    also = {game: test_rewards(trainer, game) for game in settings.get("also", [])}
    found = {"curve": curve, "seconds": seconds, "metrics": metrics, "test_rewards": test_rewards(trainer)}
    return found | ({"also": also} if also else {})


def drawn(
    updates: int, evaluations: int, update: Callable[[int], object], evaluate: Callable[[], float]
) -> tuple[list[tuple[int, float]], float]:
    """Runs updates 1 to `updates`. Returns the curve of (update, value) and the processor time of the updates.

    >>> drawn(4, 2, lambda number: None, lambda: 0.5)[0]
    [(0, 0.5), (2, 0.5), (4, 0.5)]
    """
    seconds, curve = 0.0, [(0, evaluate())]
    stops = {round(stop) for stop in np.linspace(0, updates, evaluations + 1)}
    for number in range(1, updates + 1):
        began = time.process_time()
        update(number)
        seconds += time.process_time() - began
        if number in stops:
            curve.append((number, evaluate()))
    return curve, round(seconds, 2)


def configured(fields: Settings) -> TrainConfig:
    """A configuration from `preset` and the fields that differ from it. Every run here ends with its last weights."""
    values = {"keep": "last", **fields}
    return replace(preset(fields["preset"]), **{name: value for name, value in values.items() if name != "preset"})


def adapter_of(config: TrainConfig, scratch: Path) -> Path:
    """The adapter of a run, which is trained unless it is there."""
    folder = RunFolder(scratch / f"run-{fingerprint(config)[:16]}")
    with FileLock(scratch / f"{folder.path.name}.lock"):  # another process may be training it
        train(config, folder.path, resume=True)
    adapter: Path = folder.adapter
    return adapter


def test_rewards(trainer: Trainer, *games: str) -> list[float]:
    """The rewards of the test episodes of some games, by default those of the run, sampled as in evaluation."""
    return [episode.reward for episode in test_episodes(trainer, trainer.config.eval_temperature, *games)]


def test_episodes(trainer: Trainer, temperature: float, *games: str) -> list[Episode]:
    """The test episodes of some games, by default those of the run, sampled at a temperature."""
    agent, indices = replace(trainer.agent, temperature=temperature), range(trainer.config.test_episodes)
    with merged(trainer.model):
        return [
            episode
            for name in games or trainer.starts.games
            for episode in play_episodes(make_game(name), agent, [(episode_seed(name, "test", index), 0) for index in indices])
        ]
