"""Reads rollout data sets back as equal `Episode` objects, from a folder or from one commit on the Hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

from huggingface_hub import HfApi

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, Message, PromptFormat
from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.downloads.names import is_folder
from msgrpo_hub.downloads.snapshots import snapshot
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.verify_rollouts import checked_rollouts
from msgrpo_hub.fields import checked
from msgrpo_hub.games import Split
from msgrpo_hub.hub.uploading import check_repo_id
from msgrpo_hub.storage.shards import missing_updates, shards
from msgrpo_hub.storage.tables import prompts_of

SHARD = re.compile(r"(default|steps)/((?:train|validation|test)-[A-Za-z0-9-]+\.parquet)")
"""Names of the files that are read; all others are ignored."""

LARGEST = 20 * 1024**3
"""Largest download, in bytes."""


@checked
def load_rollouts(
    repo_or_path: str | Path, *, split: Split | None = None, revision: str | None = None, token: str | None = None
) -> list[Episode]:
    """The episodes of a rollout data set, equal to those that were played: each is replayed, and its replies are parsed.

    Args:
        repo_or_path: `USER/NAME` on the Hub, a folder with a rollout data set, or the folder of a run that saved its episodes.
        split: `train`, `validation` or `test`; None reads all.
        revision: branch, tag or commit on the Hub; None is main. It is resolved first, so that all files are of one commit.
        token: None uses the token of `hf auth login` or HF_TOKEN.

    Raises:
        UserError: the data set does not exist, has another format, is larger than `LARGEST`, or has an episode that the rules
            do not give.
    """
    folder = Path(repo_or_path)
    if not is_folder(folder):
        folder = _downloaded(check_repo_id(str(repo_or_path)), split, revision, token)
    if not (found := shards(folder)):
        raise UserError(f"no rollouts in {str(repo_or_path)!r}: expected what `msgrpo push rollouts` wrote")
    wanted = [(heads, steps) for heads, steps in found if split in (None, heads.name.partition("-")[0])]
    if not wanted:
        raise UserError(f"no episodes of the split {split!r} in {str(repo_or_path)!r}: expected another split, or None for all")
    if split in (None, "train") and (missing := missing_updates(folder)):
        raise UserError(f"update {missing[0]} is missing from {str(repo_or_path)!r}: expected the episodes of all updates")
    return [rollout.episode for heads, steps in wanted for rollout in checked_rollouts(heads, steps)]


def check_rollouts(repo_id: str, run: str, token: str | None = None) -> str:
    """Returns the name of a public data set with the training episodes of a run.

    Args:
        repo_id: `USER/NAME` on the Hub.
        run: the run as its shards name it (`Origin.run`).
        token: None uses the token of `hf auth login` or HF_TOKEN.

    Raises:
        UserError: the data set is missing or private, or holds no training episodes of this run.
    """
    check_repo_id(repo_id)
    with hub_errors(repo_id):
        info = HfApi(token=token).dataset_info(repo_id)
    if info.private:
        raise UserError(f"the rollouts {repo_id!r} are private: expected a public dataset, which readers of the card can open")
    if not any(entry.rfilename.startswith(f"default/train-{run}-") for entry in info.siblings or ()):
        raise UserError(f"{repo_id!r} has no training episodes of this run: expected what `msgrpo push rollouts` made of it")
    return repo_id


def _downloaded(repo_id: str, split: str | None, revision: str | None, token: str | None) -> Path:
    """Downloads the shards of one commit and no other files."""
    with hub_errors(repo_id):
        info = HfApi(token=token).dataset_info(repo_id, revision=revision, files_metadata=True)
        sizes = {entry.rfilename: entry.size or 0 for entry in info.siblings or () if SHARD.fullmatch(entry.rfilename)}
        wanted = [name for name in sizes if split in (None, Path(name).name.partition("-")[0])]
        if not wanted:
            what = f"no episodes of the split {split!r}" if sizes else "no rollouts"
            raise UserError(f"{what} in {repo_id!r}: expected a data set that `msgrpo push rollouts` wrote")
        if (size := sum(sizes[name] for name in wanted)) > LARGEST:
            raise UserError(f"the rollouts in {repo_id!r} have {size} bytes: expected at most {LARGEST}; load one split")
    return snapshot(repo_id, str(info.sha), {name: sizes[name] for name in wanted}, kind="dataset", token=token)


class Example(TypedDict):
    """One training example in TRL's format; the loss is on the completion alone."""

    prompt: list[Message]
    completion: list[Message]


@checked
def supervised(
    episodes: Iterable[Episode],
    keep: Callable[[Episode], bool] = lambda episode: episode.success,
    prompt_format: PromptFormat = THINK_ACTION,
) -> list[Example]:
    """Makes examples for supervised fine-tuning from episodes: `trl.SFTTrainer` takes a `Dataset` of them.

    Args:
        episodes: as returned by `load_rollouts`.
        keep: selects the episodes to imitate, by default the successful ones. Replies without an action are left out.
        prompt_format: the format that the episodes were played in.
    """
    return [
        Example(prompt=prompt, completion=[{"role": "assistant", "content": step.completion.text}])
        for episode in episodes
        if keep(episode)
        for step, prompt in zip(episode.steps, prompts_of(episode, prompt_format), strict=True)
        if step.action is not None
    ]
