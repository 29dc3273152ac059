"""What may happen beside training: a callback sees every update before it is saved, and writes, draws or sends what it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from msgrpo_hub.credit import StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training.config import TrainConfig

# Shapes: G episodes of a group.


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that a callback joins."""

    config: TrainConfig
    folder: Path
    """Its output folder."""
    updates: int
    """How many updates it has already done; more than 0 if it resumes."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update: what was played, what was made of it, and what was measured."""

    index: int
    """Its number, from 1."""
    groups: Sequence[Group]
    advantages: Sequence[Tensor]
    """Per group (G,), A_j of the episodes' composite returns."""
    step_advantages: StepAdvantages
    """Per group and episode, what the credit gave each step."""
    selected: Sequence[SelectedEpisode]
    """What was learned from."""
    metrics: dict[str, float]
    """As in metrics.jsonl."""


class Callback:
    """Beside a training run, in its first process. Override what you need; an exception ends the run, which can be resumed."""

    def before_start(self, folder: Path) -> None:
        """Before the run's folder is read, which may be missing: a run that is put there now is the one that resumes."""

    def on_start(self, run: Run) -> None:
        """Before the first update; a run that resumes may play some updates again, those beyond `run.updates`."""

    def on_update(self, update: Update) -> None:
        """After each update, before its checkpoint: what is written here is on the disk when the update counts as done."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """After the final table; `summary` is that of summary.json."""
