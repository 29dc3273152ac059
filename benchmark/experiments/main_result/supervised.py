"""The same adapter, taught by a player that knows the best moves, and not trained with rewards."""

from __future__ import annotations

from accelerate import Accelerator

from benchmark.experiments.experiment import Settings
from benchmark.experiments.training import configured
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.trainer import Trainer


def taught(settings: Settings) -> tuple[TrainConfig, Trainer]:
    """Trains a preset's adapter for some updates on the moves of a teacher, in fresh episodes for every update.

    Args:
        settings: `preset`, `seed`, `updates`, `teacher` and `episodes`, the number of test episodes; `game`, unless it is the
            preset's.
    """
    fields = {name: settings[name] for name in ("preset", "seed", "updates", "teacher", "game") if name in settings}
    config = configured({**fields, "taught": settings["updates"], "test_episodes": settings["episodes"]})
    trainer = Trainer(config, Accelerator(cpu=True))
    for update in range(1, config.updates + 1):
        trainer.update(update)
    return config, trainer
