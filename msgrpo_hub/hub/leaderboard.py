"""The leaderboard: published runs, each replayed before it is listed.

A results dataset holds runs of `msgrpo eval` under `results/<player>/<commit>/<task>/<run hash>/`. The leaderboard is computed
from these runs; the stored summaries and the table on the dataset's page are not trusted. No other file is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub.hf_api import RepoFile
from tqdm import tqdm

from msgrpo_hub.downloads.client import hub_errors, snapshot
from msgrpo_hub.downloads.names import is_folder
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.evaluation.results import Result, player_key, player_names, run_hash
from msgrpo_hub.evaluation.semantic import semantic_table
from msgrpo_hub.evaluation.summary import plays, rank_key
from msgrpo_hub.evaluation.tables import RANKS, acting, markdown_table, ranks, same_episodes
from msgrpo_hub.evaluation.verify import FILES, REPLAYED, check_sizes, checked_run, unchecked
from msgrpo_hub.fields import checked
from msgrpo_hub.hub.uploading import Target
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import files_below

RUNS = "results"

_MOST_BYTES = 20 * 1024**3
_PART = r"[A-Za-z0-9_+][A-Za-z0-9._+=-]{0,199}"
_PLACE = re.compile(rf"{_PART}/{_PART}/{_PART}/[0-9a-f]{{16}}")


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The runs of a dataset at a commit, or of a folder."""

    source: str
    commit: str
    """Empty for a folder."""
    results: tuple[Result, ...]
    """Runs that replay, sorted by task and descending reward."""
    refused: Mapping[str, str]
    """Run or file that is not listed → the reason."""

    @cached_property
    def name(self) -> Callable[[Result], str]:
        """Result → the player's name, with what distinguishes it from other players of that name."""
        names = player_names(self.results)
        return lambda result: names[player_key(result)]

    @cached_property
    def ranks(self) -> dict[str, list[int]]:
        """Run hash → best and worst rank that the paired tests leave open. A player that does not play has none."""
        pairs = [pair for group in same_episodes(self.results) for pair in zip(group, ranks(group), strict=True)]
        return {run_hash(result.config): [rank.best, rank.worst] for result, rank in pairs if rank}


@checked
def read_leaderboard(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Leaderboard:
    """Reads published results at one commit and replays each run: lists those that replay, and why each other one does not.

    Args:
        source: `USER/NAME` of a dataset that `msgrpo push results` wrote, or a folder that `msgrpo eval` wrote.
        revision: a branch, a tag, a commit, or `refs/pr/N` of a pull request; None is main.

    Raises `UserError` if the dataset does not exist, the Hub cannot be reached, or the folder has no runs.
    """
    if is_folder(source):
        if revision is not None:
            raise UserError(f"{str(source)!r} is a folder, which has no revision {shown(revision)}: omit --revision")
        return read_folder(Path(source))
    target = Target(repo_id=str(source), kind="dataset", token=token)
    with hub_errors(target.repo_id):
        commit, there = target.read(revision)
    return read_published(target, commit, there)


def place(folder: Path) -> str:
    """`<player>/<commit>/<task>/<run hash>` of a run. Raises `UserError` for another folder name."""
    name = "/".join(folder.resolve().parts[-4:])
    if not _PLACE.fullmatch(name):
        raise UserError(f"{str(folder)!r} is not named <player>/<commit>/<task>/<run hash>, as `msgrpo eval` names it")
    return name


def read_folder(path: Path, only: Collection[Path] | None = None) -> Leaderboard:
    """Reads the runs under a folder, or only some of them, and lists those that lack a file. Raises `UserError` without runs."""
    folders = {file.parent for file in files_below(path, *FILES, run_files.LOG)}
    runs = {str(folder.relative_to(path)): folder for folder in folders if only is None or folder in only}
    if not runs:
        raise UserError(f"no runs under {str(path)!r}: expected a folder that `msgrpo eval --output-dir` wrote")
    return _replayed(str(path), "", runs, {})


def read_published(target: Target, commit: str, there: Mapping[str, RepoFile]) -> Leaderboard:
    """Reads the runs of a dataset from its files at a commit. Raises `UserError` if they are too large."""
    runs, refused = runs_among(there.values())
    for name, files in runs.items():
        try:
            check_sizes(files)
        except UserError as error:
            refused[name] = str(error)
    accepted = [name for name in runs if name not in refused]
    sizes = {f"{RUNS}/{name}/{file}": runs[name][file] for name in accepted for file in FILES}
    if (size := sum(sizes.values())) > _MOST_BYTES:
        raise UserError(f"{target.repo_id!r} has runs of {size:,} bytes: expected at most {_MOST_BYTES:,}; use a smaller dataset")
    root = snapshot(target.repo_id, commit, sizes, kind="dataset", token=target.token) if sizes else Path()
    return _replayed(target.repo_id, commit, {name: root / RUNS / name for name in accepted}, refused)


def runs_among(files: Iterable[RepoFile]) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """The runs of a dataset, as place → file → size, and the files under `results/` that belong to no run."""
    runs: dict[str, dict[str, int]] = {}
    refused = {}
    for file in files:
        path = PurePosixPath(file.path)
        folder = "/".join(path.parts[1:-1])
        if path.parts[0] == RUNS and _PLACE.fullmatch(folder) and path.name in FILES:
            runs.setdefault(folder, {})[path.name] = file.size
        elif path.parts[0] == RUNS:
            refused[_plain("/".join(path.parts[1:]))] = "it is not a file of a run and was not opened"
    return runs, refused


def _replayed(source: str, commit: str, runs: Mapping[str, Path], refused: dict[str, str]) -> Leaderboard:
    """Replays runs. Two different runs with the same hash are both refused."""
    by_hash: dict[str, tuple[str, Result]] = {}
    for name, folder in tqdm(sorted(runs.items()), desc="replaying the runs", unit="run", leave=False, disable=None):
        try:
            result = checked_run(folder)
        except UserError as error:
            refused[name] = _plain(str(error).replace(str(folder), name))
            continue
        other, twin = by_hash.setdefault(run_hash(result.config), (name, result))
        if (twin.config, twin.episodes) != (result.config, result.episodes):
            refused |= dict.fromkeys((other, name), "two runs with the same hash differ")
    listed = ranked(result for name, result in by_hash.values() if name not in refused)
    return Leaderboard(source=source, commit=commit, results=listed, refused=dict(sorted(refused.items())))


def ranked(results: Iterable[Result]) -> tuple[Result, ...]:
    """Runs sorted by task and descending reward, players that do not play last; ties by place."""
    return tuple(sorted(results, key=lambda run: (run.task, rank_key(run.summary), run.folder.resolve().parts[-4:])))


def _plain(text: str) -> str:
    """A foreign text made safe to show: short, without control characters of terminals or Markdown."""
    return re.sub(r"[^\w .,:;()+=/'-]", "?", text[:300], flags=re.ASCII)


# ---- as text and data


def as_markdown(board: Leaderboard, at: str = "") -> str:
    """One table per task, sorted by descending reward; players link to their runs at the revision `at`, if given."""
    pages = f"https://huggingface.co/datasets/{board.source}/tree/{at}/{RUNS}"
    name = (lambda result: f"[{board.name(result)}]({pages}/{place(result.folder)})") if at else board.name
    tables = [markdown_table(group, name) for group in same_episodes(board.results)]
    notes = [f"{RANKS}.", semantic_table(board.results, name, "markdown"), f"*{REPLAYED}*"] if tables else []
    return "\n\n".join(filter(None, [*tables, *notes]))


def as_json(board: Leaderboard) -> dict[str, Any]:
    """The leaderboard as JSON data, with the full configuration and summary of each run."""
    rows = []
    for run in board.results:
        folder = f"{RUNS}/{place(run.folder)}" if board.commit else str(run.folder)
        own = {"name": board.name(run), "rank": board.ranks.get(run_hash(run.config)), "folder": folder}
        rows.append({**run.config, **own, **run.summary, "unchecked": unchecked(run)})
    return {"source": board.source, "commit": board.commit, "results": rows, "refused": dict(board.refused)}


def as_rows(board: Leaderboard) -> list[dict[str, Any]]:
    """The leaderboard as short rows: task, player, rank, scores, the value of silence, and how the player acted."""
    rows = []
    for run in board.results:
        scores = {name: run.summary[name] for name in ("episodes", "reward", "success", "normalised", "run")}
        row = {"task": run.task, "player": board.name(run), "rank": board.ranks.get(run_hash(run.config)), **scores}
        silent = run.summary["references"].get("silent")
        rows.append(row | {"silent": silent, "plays": plays(run.summary), **acting(run)})
    return rows
