"""A trainer of a tiny model, and its weights, for tests that look inside a run."""

from __future__ import annotations

from accelerate import Accelerator
from torch import Tensor

from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.trainer import Trainer


def trainer_of(config: TrainConfig) -> Trainer:
    return Trainer(config, Accelerator(cpu=True))


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.parameters.items()}


def trained(config: TrainConfig) -> dict[str, Tensor]:
    trainer = trainer_of(config)
    for index in range(1, config.updates + 1):
        trainer.update(index)
    return weights(trainer)


def farthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of two adapters that have the same parameters."""
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)
