"""Rollout data sets read back: equal `Episode` objects, from a folder or from the Hub at one commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

from huggingface_hub import HfApi, snapshot_download

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, Message, PromptFormat
from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.uploading import check_repo_id
from msgrpo_hub.storage.shards import load_shards, shards
from msgrpo_hub.storage.tables import prompts_of

SHARD = re.compile(r"(default|steps)/((?:train|validation|test)-[A-Za-z0-9-]+\.parquet)")
"""Names of the files that are read; no others are looked at."""

LARGEST = 20 * 1024**3
"""Bytes that are downloaded at most."""


def load_rollouts(
    repo_or_path: str | Path, *, split: str | None = None, revision: str | None = None, token: str | None = None
) -> list[Episode]:
    """The episodes of a rollout data set, equal to those that were played.

    Args:
        repo_or_path: `USER/NAME` on the Hub, a folder with such a data set, or the folder of a run that saved its episodes.
        split: `train`, `validation` or `test`; None is all.
        revision: branch, tag or commit on the Hub; None is main. It is resolved first, so that all files are of one commit.
        token: None is the one of `hf auth login` or HF_TOKEN.

    Raises:
        UserError: there is no such data set, it has another format, or it is larger than is reasonable.
    """
    folder = Path(repo_or_path)
    if not folder.is_dir():
        folder = _downloaded(check_repo_id(str(repo_or_path)), split, revision, token)
    if not shards(folder):
        raise UserError(f"no rollouts in {str(repo_or_path)!r}: expected what `msgrpo push rollouts` wrote")
    return [rollout.episode for part in load_shards(folder, split) for rollout in part]


def _downloaded(repo_id: str, split: str | None, revision: str | None, token: str | None) -> Path:
    """The shards of one commit, and nothing else of the repository."""
    with hub_errors(repo_id):
        info = HfApi(token=token).dataset_info(repo_id, revision=revision, files_metadata=True)
        found = {entry.rfilename: entry.size or 0 for entry in info.siblings or () if SHARD.fullmatch(entry.rfilename)}
        wanted = [name for name in found if split in (None, Path(name).name.partition("-")[0])]
        if not wanted:
            what = f"no episodes of the split {split!r}" if found else "no rollouts"
            raise UserError(f"{what} in {repo_id!r}: expected a data set that `msgrpo push rollouts` wrote")
        if (size := sum(found[name] for name in wanted)) > LARGEST:
            raise UserError(f"the rollouts in {repo_id!r} have {size} bytes: expected at most {LARGEST}; take one split")
        return Path(snapshot_download(repo_id, repo_type="dataset", revision=info.sha, allow_patterns=wanted, token=token))


class Example(TypedDict):
    """One reply to learn from, as TRL takes it: only the completion is trained on."""

    prompt: list[Message]
    completion: list[Message]


def supervised(
    episodes: Iterable[Episode],
    keep: Callable[[Episode], bool] = lambda episode: episode.success,
    prompt_format: PromptFormat = THINK_ACTION,
) -> list[Example]:
    """The replies of some episodes as examples for supervised fine-tuning: `trl.SFTTrainer` takes a `Dataset` of them.

    Args:
        episodes: as `load_rollouts` gives them.
        keep: which of them are worth imitating, by default those that succeeded. Their replies without an action are left out.
        prompt_format: the one they were played in, which made the prompts.
    """
    return [
        Example(prompt=prompt, completion=[{"role": "assistant", "content": step.completion.text}])
        for episode in episodes
        if keep(episode)
        for step, prompt in zip(episode.steps, prompts_of(episode, prompt_format), strict=True)
        if step.action is not None
    ]
