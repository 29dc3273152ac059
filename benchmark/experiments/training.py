"""Training as a unit of an experiment: a configuration and a seed, run for a given processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from accelerate import Accelerator

from benchmark.experiments.experiment import Settings, Values
from msgrpo_hub.models.weights import merged
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.trainer import Trainer

Prepare = Callable[[Trainer], None]
"""Changes a trainer before its first update."""


def learning_curve(settings: Settings, prepare: Prepare) -> Values:
    """Trains for some processor time, during which the clock stops for evaluations.

    Args:
        settings: `preset`, `settings` (fields of the configuration beside it), `seed`, `seconds` of the updates, and the number
            of `evaluations` on the validation episodes.
        prepare: changes the trainer, such as its credit.

    Returns:
        `curve`: (seconds, updates, validation reward), the first before training; `test_rewards` of the trained adapter, one
        per test episode; and the number of `updates`.
    """
    config = replace(preset(settings["preset"]), seed=settings["seed"], **settings["settings"])
    trainer = Trainer(config, Accelerator(cpu=True))
    prepare(trainer)
    seconds, updates, curve = 0.0, 0, [(0.0, 0, trainer.evaluate()["validation_reward"])]
    for until in np.linspace(0, settings["seconds"], settings["evaluations"] + 1)[1:]:
        while seconds < until:
            began = time.process_time()
            updates += 1
            trainer.update(updates)
            seconds += time.process_time() - began
        curve.append((round(seconds, 2), updates, trainer.evaluate()["validation_reward"]))
    return {"curve": curve, "updates": updates, "test_rewards": test_rewards(trainer)}


def test_rewards(trainer: Trainer) -> list[float]:
    """The rewards of the test episodes of every game, sampled as in evaluation."""
    agent = replace(trainer.agent, temperature=trainer.config.eval_temperature)
    with merged(trainer.model):
        episodes = [
            episode
            for name, game in trainer.starts.games.items()
            for episode in play_episodes(game, agent, [(seed, 0) for seed in trainer.starts.test(name)])
        ]
    return [episode.reward for episode in episodes]
