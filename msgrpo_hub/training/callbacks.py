"""Callbacks: code that runs beside training. Training itself uses them for trackers and saved rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import Tensor

from msgrpo_hub.episode import Group
from msgrpo_hub.msgrpo import SelectedEpisode, StepAdvantages
from msgrpo_hub.training.config import TrainConfig

# Shapes: G episodes of a group.


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that a callback joins."""

    config: TrainConfig
    folder: Path
    """Its output folder."""
    updates: int
    """The number of finished updates; more than 0 if the run resumes."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """The episodes and the metrics of one update."""

    index: int
    """Its number, from 1."""
    groups: Sequence[Group]
    advantages: Sequence[Tensor]
    """Per group (G,), A_j of the episodes' composite returns."""
    step_advantages: StepAdvantages
    """Per group and episode, the advantage of each step."""
    selected: Sequence[SelectedEpisode]
    """The episodes that the update learned from."""
    metrics: dict[str, float]
    """As in metrics.jsonl."""


class Callback:
    """Called in the first process of a run. Override the methods you need; an exception ends the run, which can be resumed."""

    def before_start(self, folder: Path) -> None:
        """Called before training reads the run's folder, which may be missing. A run that you put there is resumed."""

    def on_start(self, run: Run) -> None:
        """Called before the first update. A resumed run may repeat updates beyond `run.updates`."""

    def on_update(self, update: Update) -> None:
        """Called after each update, before its checkpoint is written."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Called after the final table with the content of summary.json."""


class TrackerLog(Callback):
    """Sends the metrics of each update to the trackers of accelerate (`report_to`)."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def on_start(self, run: Run) -> None:
        self.accelerator.init_trackers("msgrpo", config={k: str(v) for k, v in asdict(run.config).items()})

    def on_update(self, update: Update) -> None:
        metrics = {name: value for name, value in update.metrics.items() if name != "update"}
        self.accelerator.log(metrics, step=update.index)
