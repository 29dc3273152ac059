"""Trainers of tiny models for tests of single updates."""

from __future__ import annotations

from collections.abc import Sequence

from accelerate import Accelerator
from torch import Tensor

from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training import Callback, TrainConfig
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Trainer


class Stop(Callback):
    """Interrupts a run in an update, before the update is saved."""

    def __init__(self, index: int) -> None:
        self.index = index

    def on_update(self, update: Update) -> None:
        if update.index == self.index:
            raise KeyboardInterrupt


def trainer_of(config: TrainConfig) -> Trainer:
    return Trainer(config, Accelerator(cpu=True))


def learn(trainer: Trainer, selected: Sequence[SelectedEpisode], index: int) -> Metrics:
    """One optimiser step on some episodes."""
    return trainer.step(trainer.gradient(trainer.packed(selected)), index)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.parameters.items()}


def trained(config: TrainConfig) -> dict[str, Tensor]:
    trainer = trainer_of(config)
    for index in range(1, config.updates + 1):
        trainer.update(index)
    return weights(trainer)


def farthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of two adapters with the same parameters."""
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)
