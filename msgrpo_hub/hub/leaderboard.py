"""The leaderboard: published runs, each played again before it is listed.

A results dataset holds runs as `msgrpo eval` writes them, under `results/<player>/<commit>/<task>/<run hash>/`. They are
the leaderboard. The summary beside each run, and the table that the dataset's page shows, are conveniences that nothing
here believes. Anything else in the dataset is neither downloaded nor opened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.hf_api import RepoFile
from tqdm import tqdm

from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.evaluation.results import Result, player_names, run_hash
from msgrpo_hub.evaluation.tables import markdown_table, same_episodes
from msgrpo_hub.evaluation.untrusted import FILES, check_sizes, checked_run
from msgrpo_hub.hub.uploading import Target, listing
from msgrpo_hub.storage import run_files

RUNS = "results"
"""Folder of the runs in a dataset."""

_MOST_RUNS = 5_000
_PART = r"[A-Za-z0-9_+][A-Za-z0-9._+=-]{0,199}"
_PLACE = re.compile(rf"{_PART}/{_PART}/{_PART}/[0-9a-f]{{16}}")
"""`<player>/<commit>/<task>/<run hash>`."""


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The runs of a dataset at a commit, or of a folder."""

    source: str
    """`USER/NAME`, or the folder."""
    commit: str
    """Empty for a folder."""
    results: tuple[Result, ...]
    """Runs that follow from the rules, by task, the best reward first."""
    refused: Mapping[str, str]
    """What is not listed → why."""

    def name(self, result: Result) -> str:
        """The player of a result, with what sets it apart where two have the same name."""
        [key] = player_names([result])
        return self._names[key]

    @cached_property
    def _names(self) -> dict[str, str]:
        return player_names(self.results)

    def of_task(self, task: str) -> Leaderboard:
        """The runs of one task. Raises `UserError` where there is none."""
        tasks = sorted({result.task for result in self.results})
        if task not in tasks:
            raise unknown("task", task, tasks) if tasks else UserError(f"{self.source!r} lists no runs: expected some of {task}")
        return replace(self, results=tuple(result for result in self.results if result.task == task))


def read_leaderboard(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Leaderboard:
    """Reads published results: all of one commit, each run played again.

    Args:
        source: `USER/NAME` of a dataset that `msgrpo push results` has filled, or a folder that `msgrpo eval` has.
        revision: a branch, a tag, a commit, or `refs/pr/N` of a pull request; None is main.
        token: None is the one of `hf auth login` or HF_TOKEN; a public dataset needs none.

    Returns:
        What follows from the rules, and with a reason each what does not.

    Raises:
        UserError: there is no such dataset, or the Hub cannot be reached, or a folder holds no runs.
    """
    path = Path(source)
    if path.is_dir():
        return read_folder(path)
    target = Target(repo_id=str(source), kind="dataset", token=token)
    with hub_errors(target.repo_id):
        info = target.api.repo_info(target.repo_id, repo_type="dataset", revision=revision)
        return read_published(target, str(info.sha), listing(target, str(info.sha)))


def place(folder: Path) -> str:
    """`<player>/<commit>/<task>/<run hash>` of a run. Raises `UserError` where its folder is not called so."""
    found = "/".join(folder.resolve().parts[-4:])
    if not _PLACE.fullmatch(found):
        raise UserError("its folder is not called <player>/<commit>/<task>/<run hash>, as `msgrpo eval` does")
    return found


def read_folder(path: Path) -> Leaderboard:
    """Reads the runs under a folder as `read_leaderboard` reads those of a dataset. Raises `UserError` where there is none."""
    folders = {str(file.parent.relative_to(path)): file.parent for file in path.rglob(run_files.RESULTS)}
    runs = {name: folder for name, folder in folders.items() if (folder / run_files.CONFIG).exists()}
    if not runs:
        raise UserError(f"no runs under {str(path)!r}: expected a folder that `msgrpo eval --output-dir` has filled")
    return _judged(str(path), "", runs, {})


def read_published(target: Target, commit: str, there: Mapping[str, RepoFile], without: Collection[str] = ()) -> Leaderboard:
    """Reads the runs of a dataset at a commit.

    Args:
        target: the dataset.
        commit: which of its commits.
        there: the files of it.
        without: places of runs that are not wanted.

    Raises:
        UserError: there are too many runs.
    """
    runs, refused = _published(there.values())
    wanted = [name for name in runs if name not in without]
    if len(wanted) > _MOST_RUNS:
        raise UserError(f"{target.repo_id!r} has {len(wanted):,} runs: expected at most {_MOST_RUNS:,}; take a smaller dataset")
    for name in wanted:
        try:
            check_sizes(runs[name])
        except UserError as error:
            refused[name] = str(error)
    fit = [name for name in wanted if name not in refused]
    if not fit:
        return _judged(target.repo_id, commit, {}, refused)
    root = snapshot_download(
        target.repo_id,
        repo_type="dataset",
        revision=commit,
        token=target.token,
        allow_patterns=[f"{RUNS}/{name}/{file}" for name in fit for file in FILES],
    )
    return _judged(target.repo_id, commit, {name: Path(root, RUNS, name) for name in fit}, refused)


def _published(files: Iterable[RepoFile]) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """The runs of a dataset, by place, with the sizes of their files; and what lies among them and is no part of one."""
    runs: dict[str, dict[str, int]] = {}
    refused = {}
    for file in files:
        path = PurePosixPath(file.path)
        folder = "/".join(path.parts[1:-1])
        if path.parts[0] != RUNS:
            continue
        if _PLACE.fullmatch(folder) and path.name in FILES:
            runs.setdefault(folder, {})[path.name] = file.size
        else:
            refused[_plain("/".join(path.parts[1:]))] = "it is no file of a run, and was not opened"
    return runs, refused


def _judged(source: str, commit: str, runs: Mapping[str, Path], refused: dict[str, str]) -> Leaderboard:
    """Plays runs again; of two that claim one hash neither is believed, unless they are the same."""
    found: dict[str, tuple[str, Result]] = {}
    for name, folder in tqdm(sorted(runs.items()), desc="playing the runs again", unit="run", leave=False, disable=None):
        try:
            result = checked_run(folder)
        except UserError as error:
            refused[name] = _plain(str(error))
            continue
        other, twin = found.setdefault(run_hash(result.config), (name, result))
        if not same_play(twin, result):
            refused |= dict.fromkeys((other, name), "two runs of one hash differ")
    kept = ranked(result for name, result in found.values() if name not in refused)
    return Leaderboard(source=source, commit=commit, results=kept, refused=dict(sorted(refused.items())))


def ranked(results: Iterable[Result]) -> tuple[Result, ...]:
    """Runs by task, the best reward first; equal ones in the order of their places."""
    return tuple(sorted(results, key=lambda run: (run.task, -run.summary["reward"]["mean"], run.folder.resolve().parts[-4:])))


def _plain(text: str) -> str:
    """Somebody else's text as it can be shown anywhere: short, and without what a terminal or Markdown would obey."""
    return re.sub(r"[^\w .,:;()+=/'-]", "?", text[:300], flags=re.ASCII)


def same_play(a: Result, b: Result) -> bool:
    """Whether two runs are equal in all that counts; their files may still differ in bytes, as Parquet of two versions does."""
    return (a.config, a.episodes) == (b.config, b.episodes)


# ---- as text


def as_markdown(board: Leaderboard, at: str = "") -> str:
    """A table per task, the best reward first; with a revision, players link to their runs at it."""
    pages = f"https://huggingface.co/datasets/{board.source}/tree/{at}/{RUNS}"

    def name(result: Result) -> str:
        return f"[{board.name(result)}]({pages}/{place(result.folder)})" if at else board.name(result)

    return "\n\n".join(markdown_table(group, name) for group in same_episodes(board.results))


def as_json(board: Leaderboard) -> dict[str, Any]:
    """All of it as plain data: per run its whole configuration and its whole summary."""
    rows = [{**run.config, "name": board.name(run), "folder": _folder(board, run), **run.summary} for run in board.results]
    return {"source": board.source, "commit": board.commit, "results": rows, "refused": dict(board.refused)}


def _folder(board: Leaderboard, result: Result) -> str:
    return f"{RUNS}/{place(result.folder)}" if board.commit else str(result.folder)
