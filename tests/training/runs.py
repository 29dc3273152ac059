"""Tiny runs: their files, resuming them, and trainers for tests of single updates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator
from torch import Tensor

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training import Callback, TrainConfig
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.summary import Metrics
from msgrpo_hub.training.trainer import Trainer
from tests.files import hashes, sha256

if TYPE_CHECKING:
    from tests.command import Command, Finished

WEIGHTS = "adapter_model.safetensors"


def metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of each update, without measurements of the machine."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k != "memory_mb"} for line in lines]


def updates_safe(folder: Path) -> int:
    """The number of updates in the checkpoint."""
    return RunFolder(folder).updates()


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def assert_same_run(folder: Path, uninterrupted: Path) -> None:
    """The same weights to the last bit, each update once and with the same metrics, the same table, the same files."""
    assert [line["update"] for line in metrics(folder)] == [1, 2, 3, 4, 5, 6]
    assert metrics(folder) == metrics(uninterrupted)
    for name in (f"adapter/{WEIGHTS}", f"best/{WEIGHTS}", "checkpoint.safetensors"):
        assert sha256(folder / name) == sha256(uninterrupted / name), name
    ours, theirs = summary_of(folder), summary_of(uninterrupted)
    assert [ours[name] for name in ours["players"]] == [theirs[name] for name in theirs["players"]]
    assert hashes(folder).keys() == hashes(uninterrupted).keys()


def resumed(msgrpo: Command, folder: Path, *flags: object, **given: Any) -> Finished:
    return msgrpo("train", "--resume", *flags, "--output-dir", folder, **given)


class Stop(Callback):
    """Interrupts a run in an update, before the update is saved."""

    def __init__(self, index: int) -> None:
        self.index = index

    def on_update(self, update: Update) -> None:
        if update.index == self.index:
            raise KeyboardInterrupt


def trainer_of(config: TrainConfig) -> Trainer:
    return Trainer(config, Accelerator(cpu=True))


def replies_of(groups: Sequence[Group]) -> list[Completion]:
    return [step.completion for group in groups for episode in group.episodes for step in episode.steps]


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
