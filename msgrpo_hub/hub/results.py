"""Pushes results to the Hub: a dataset collects runs of `msgrpo eval` from anyone.

    results/<player>/<commit>/<task>/<run hash>/   config.lock.json  results.json  episodes.parquet  steps.parquet
    leaderboard.parquet                            one row per run, for the dataset's page and for `load_dataset`
    README.md                                      the card, with the table

A push adds its own runs and keeps all others. The last two files are made from all runs at the parent commit. A
pull request holds runs only, because two open requests that both changed the table would conflict; the owner's next push
updates the table. `msgrpo leaderboard` reads the runs, never the table.

A run that does not replay is not pushed. If it is already in the dataset, it does not enter the table.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import DatasetCardData
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, run_hash
from msgrpo_hub.evaluation.summary import best_reference, plays
from msgrpo_hub.evaluation.tables import eval_command
from msgrpo_hub.evaluation.verify import FILES
from msgrpo_hub.hub.cards import render
from msgrpo_hub.hub.leaderboard import (
    RUNS,
    Leaderboard,
    as_markdown,
    place,
    ranked,
    read_folder,
    read_published,
    runs_among,
)
from msgrpo_hub.hub.uploading import Pushed, Target, Where, upload

TABLE = "leaderboard.parquet"
"""Marks a results dataset: one row per run."""

log = logging.getLogger(__name__)

_FIGURES = ("reward", "success", "luck_adjusted")
_PLAIN = ("normalised", "regret_per_step", "optimal_decisions", "unreadable_rate", "truncated_rate", "illegal_rate")
_COUNTS = ("decisions", "steps", "prompt_tokens", "reply_tokens")
_PLAYER = ("kind", "base", "base_commit", "adapter", "adapter_commit", "mode", "engine")
_COLUMNS = {
    **dict.fromkeys(("task", "player", *_PLAYER, "prompt_format"), pa.string()),
    **{"temperature": pa.float64(), "max_new_tokens": pa.int64()},
    **dict.fromkeys(("suite", "split"), pa.string()),
    "episodes": pa.int64(),
    **dict.fromkeys((f"{name}{end}" for name in _FIGURES for end in ("", "_low", "_high")), pa.float64()),
    **dict.fromkeys(_PLAIN, pa.float64()),
    **dict.fromkeys(("above_optimum", "plays"), pa.bool_()),
    **dict.fromkeys(("silent", "random", "reference_reward"), pa.float64()),
    **dict.fromkeys((*_COUNTS, "harness", "rank_best", "rank_worst"), pa.int64()),
    **dict.fromkeys(("reference", "task_hash", "run", "folder", "identity"), pa.string()),
}


def push_results(
    folder: str | Path,
    repo_id: str,
    *,
    commit_message: str | None = None,
    runs: Collection[Path] | None = None,
    **where: Unpack[Where],
) -> Pushed:
    """Adds the runs of a folder to a results dataset, in one commit.

    Args:
        runs: the folders of the runs to push; None is all in `folder`.
        where: as for `Target`. A pull request holds runs only.

    Raises:
        UserError: a run is incomplete or does not replay, the dataset has another run with its hash, or as for `upload`.
    """
    target = Target(repo_id=repo_id, kind="dataset", **where)
    own = _own_runs(Path(folder), runs)
    message = commit_message or f"Results of {', '.join(sorted({result.player for result in own.values()}))}"[:120]
    return upload(lambda head, there: _staged(own, target, head, there), target, message=message)


def stage_results(folder: str | Path, repo_id: str, into: Path, **where: Unpack[Where]) -> None:
    """Writes what `push_results` would send now into a folder."""
    target = Target(repo_id=repo_id, kind="dataset", **where)
    with hub_errors(repo_id):
        head, there = target.read(target.revision, may_be_missing=True)
    for name, content in _staged(_own_runs(Path(folder)), target, head, there).items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(content)


def _own_runs(folder: Path, only: Collection[Path] | None = None) -> dict[str, Result]:
    """The runs to push, by place. Raises `UserError` for the first run that does not replay or is misplaced."""
    board = read_folder(folder, only)
    for name, why in board.refused.items():
        raise UserError(f"{name!r} is not pushed: {why}; play it again or move it away (`msgrpo verify {folder}` shows details)")
    return {place(result.folder): result for result in board.results}


def _staged(runs: Mapping[str, Result], target: Target, head: str, there: Mapping[str, RepoFile]) -> dict[str, bytes]:
    """The runs that the dataset lacks at a commit and, except for a pull request, the table and card of all runs."""
    others = [name for name in sorted(there) if not name.startswith(f"{RUNS}/") and name not in ("README.md", ".gitattributes")]
    others += runs_among(there.values())[1]
    if others and TABLE not in there:  # runs without a table were merged from a pull request
        raise UserError(f"{target.repo_id!r} holds something else ({others[0]}): name another repository")
    published = read_published(target, head, there)
    for name, why in published.refused.items():
        log.warning("not listed: %s: %s", name, why)
    known = {run_hash(result.config): result for result in published.results}
    new = {}
    for name, result in runs.items():
        held = known.get(run_hash(result.config))
        if held is None:
            new[name] = result
        elif (held.config, held.episodes) != (result.config, result.episodes):  # files may differ, as Parquet versions do
            raise UserError(f"{target.repo_id!r} has a different run at {name!r}: remove it first if yours should replace it")
    files = {f"{RUNS}/{name}/{file}": (result.folder / file).read_bytes() for name, result in new.items() for file in FILES}
    if not target.create_pr:
        results, table = ranked([*published.results, *new.values()]), io.BytesIO()
        board = Leaderboard(source=target.repo_id, commit=head, results=results, refused=published.refused)
        pq.write_table(leaderboard_table(board), table, compression="zstd")
        files |= {TABLE: table.getvalue(), "README.md": render_results(board).encode()}
    return files


def leaderboard_table(board: Leaderboard) -> pa.Table:
    """One row per run, sorted by task and descending reward."""
    rows = []
    for result in board.results:
        config, summary, identity = result.config, result.summary, result.config["identity"]
        references, rank = summary["references"], board.ranks.get(run_hash(config)) or (None, None)
        figures = {name: summary[name] or {} for name in _FIGURES}
        rows.append(
            {
                **{name: identity.get(name) for name in (*_PLAYER, "temperature", "max_new_tokens")},
                **{name: config[name] for name in ("task", "player", "suite", "split", "episodes", "harness", "task_hash")},
                **{name: summary[name] for name in (*_PLAIN, *_COUNTS, "above_optimum")},
                **{name: figure.get("mean") for name, figure in figures.items()},
                **{f"{name}_{end}": figure.get(end) for name, figure in figures.items() for end in ("low", "high")},
                **{name: references.get(name) for name in ("silent", "random")},
                "rank_best": rank[0],
                "rank_worst": rank[1],
                "plays": plays(summary),
                "reference": next((name for name in references if name not in ("silent", "random")), None),
                "reference_reward": best_reference(references),
                "run": run_hash(config),
                "prompt_format": result.prompt_format,
                "folder": f"{RUNS}/{place(result.folder)}",
                "identity": json.dumps(identity, sort_keys=True),
            }
        )
    return pa.Table.from_pylist(rows, schema=pa.schema(_COLUMNS.items()))


def render_results(board: Leaderboard) -> str:
    """The README of a results dataset. The dataset's page and `load_dataset` show the table only."""
    name = board.source.partition("/")[2]
    metadata = DatasetCardData(
        pretty_name=f"Results of players of text games: {name}",
        license="apache-2.0",
        language="en",
        task_categories=["reinforcement-learning", "text-generation"],
        tags=["msgrpo", "text-games", "reinforcement-learning", "leaderboard"],
        configs=[{"config_name": "default", "data_files": [{"split": "runs", "path": TABLE}], "default": True}],
    )
    return render(
        "results.md.jinja",
        metadata,
        repo_id=board.source,
        name=name,
        runs=len(board.results),
        tables=as_markdown(board, at="main"),
        refused=board.refused,
        example=board.results[0].task,
        command=eval_command(board.results, "runs/mine"),
    )
