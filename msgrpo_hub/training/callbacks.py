"""Callbacks: code that runs beside training. Training itself saves its rollouts by one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgrpo_hub.downloads.names import POCKET, public_name, split_revision
from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.msgrpo import Selection
from msgrpo_hub.storage.files import write_atomically
from msgrpo_hub.storage.schema import CONFIGS, FORMAT
from msgrpo_hub.storage.shards import shards, write_table
from msgrpo_hub.storage.tables import Origin, Rollout, tables
from msgrpo_hub.training.config import TrainConfig, fingerprint, stored_config
from msgrpo_hub.training.machine import read_provenance
from msgrpo_hub.training.run_folder import RunFolder


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
    selection: Selection
    """Their advantages, and the episodes that the update learned from."""
    metrics: dict[str, float]
    """As in metrics.jsonl."""


class Callback:
    """Called in the first process of a run. Override what you need; an exception ends the run, which can be resumed."""

    def before_start(self, folder: Path) -> None:
        """Called before training reads the run's folder, which may be missing. A run that you put there is resumed."""

    def on_start(self, run: Run) -> None:
        """Called before the first update. A resumed run may repeat updates beyond `run.updates`."""

    def on_update(self, update: Update) -> None:
        """Called after each update, before its checkpoint is written."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Called after the final table with the content of summary.json."""


def sample_reply(update: Update, taught: bool) -> str:
    """The first reply of an update in words, without control characters: its prompt, its action and its advantage."""
    group, step = update.groups[0], update.groups[0].episodes[0].steps[0]
    action = {"unreadable": "unparsed", "truncated_reply": "truncated"}.get(step.status, f"action {step.action}")
    about = "SFT target" if taught else f"{action}, advantage {float(update.selection.step_advantages[0][0][0]):.2f}"
    text = f"update {update.index}, {group.game_id}:\n{step.observation}\n{about}: {step.completion.text}\n"
    return "\n".join(map(plain, text.split("\n")))


# ---- saved rollouts

BLOCKS = 32
"""Maximum number of shards of a published run. Few files load quickly and fit in one commit."""


class RolloutLog(Callback):
    """Saves every training episode (`save_rollouts`): one shard of each table per update, before its checkpoint."""

    def on_start(self, run: Run) -> None:
        """Deletes the shards beyond the checkpoint of a killed run."""
        self.folder, self.prompt_format = RunFolder(run.folder).rollouts, run.config.prompt_format
        for config in CONFIGS:
            (self.folder / config).mkdir(parents=True, exist_ok=True)
        for left in sorted(self.folder.glob("*/train-*.parquet")):
            if update_of(left) > run.updates:
                left.unlink()
        check_shards(run.folder, run.updates)

    def on_update(self, update: Update) -> None:
        """Writes the episodes of an update. The table of episodes comes last and completes the shard."""
        plan, selected = update.selection, {id(item.episode) for item in update.selection.selected}
        rollouts = [
            Rollout(
                episode=episode,
                update=update.index,
                prompt_format=self.prompt_format,
                advantage=float(advantage),
                step_advantages=tuple(of_steps.tolist()),
                selected=id(episode) in selected,
            )
            for group, advantages, steps in zip(update.groups, plan.advantages, plan.step_advantages, strict=True)
            for episode, advantage, of_steps in zip(group.episodes, advantages, steps, strict=True)
        ]
        for config, table in reversed(tables(rollouts).items()):
            write_atomically(self.folder / config / f"train-{update.index:05d}.parquet", partial(write_table, table))


def update_of(shard: Path) -> int:
    """The update of a shard; 0 for a file of another name."""
    return int(number) if (number := shard.stem.removeprefix("train-")).isdecimal() else 0


def check_shards(folder: Path, updates: int) -> dict[int, tuple[Path, Path]]:
    """Update → its two shards. Raises `UserError` if one of the first `updates` is missing."""
    there = {update_of(heads): (heads, steps) for heads, steps in shards(folder) if steps.exists()}
    if missing := {*range(1, updates + 1)} - {*there}:
        lost = f"the episodes of update {min(missing)} are missing from {str(folder)!r}"
        raise UserError(f"{lost}: expected all {updates}; put them back, or train again in another folder")
    return there


def blocks(folder: Path) -> tuple[Origin, dict[str, list[tuple[Path, Path]]]]:
    """The origin of a run's episodes, and its complete blocks: name → shards. Raises `UserError` if episodes are missing."""
    run = RunFolder(folder)
    if not run.config.exists():
        raise UserError(f"{str(folder)!r} holds no run: expected the folder of `msgrpo train --save-rollouts`")
    config = stored_config(run.config)
    if not config.save_rollouts:
        raise UserError(f"the run in {str(folder)!r} did not save its episodes: train it with --save-rollouts")
    pieces = check_shards(folder, done := run.updates())
    origin, size = run_origin(run), math.ceil(config.updates / BLOCKS)
    complete = {}
    for first in range(1, done + 1, size):
        last = min(first + size - 1, config.updates)
        if last <= done:
            inside = [pieces[update] for update in range(first, last + 1)]
            digests = (hashlib.sha256(file.read_bytes()).digest() for piece in inside for file in piece)
            digest = hashlib.sha256(FORMAT.encode() + b"".join(digests)).hexdigest()[:8]
            complete[f"train-{origin.run}-{first:05d}-{last:05d}-{digest}"] = inside
    return origin, complete


def run_origin(run: RunFolder) -> Origin:
    """The origin of a run's training episodes."""
    config = stored_config(run.config)
    base = public_name(split_revision(config.model, None)[0])
    commit = read_provenance(run.provenance)["base_commit"]
    base = "folder" if len(commit) == 64 and base != POCKET else base  # the name of a folder stays private
    sampled: dict[str, Any] = {"temperature": config.temperature, "max_new_tokens": config.max_new_tokens}
    return Origin(split="train", player="training", run=fingerprint(config)[:16], base=base, base_revision=commit, **sampled)
