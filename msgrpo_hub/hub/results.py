"""Pushes results to the Hub: a dataset collects runs of `msgrpo eval` from anyone.

    results/<player>/<commit>/<task>/<run hash>/   config.lock.json  results.json  episodes.parquet  steps.parquet
    leaderboard.parquet                            one row per run, for the dataset's page and for `load_dataset`
    scores.svg                                     the mean rewards as bars
    README.md                                      the card, with the table

A push adds its own runs and leaves those of others alone. The last three files are made from all runs at the parent commit,
and made again if another push came first. **A pull request holds runs only**: two open requests that both changed the table
would conflict. The owner's next push updates the table. `msgrpo leaderboard` reads the runs, never the table, so it is
current at once.

A run that does not replay is not pushed. If it is already in the dataset, it does not enter the table.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.acting import eval_command
from msgrpo_hub.evaluation.results import Result, run_hash
from msgrpo_hub.evaluation.summary import best_reference, plays
from msgrpo_hub.evaluation.tables import same_episodes, titles
from msgrpo_hub.evaluation.untrusted import FILES
from msgrpo_hub.hub.leaderboard import (
    RUNS,
    Leaderboard,
    as_markdown,
    place,
    ranked,
    read_folder,
    read_published,
    runs_among,
    same_play,
)
from msgrpo_hub.hub.results_card import ResultsCard, render_results
from msgrpo_hub.hub.uploading import Pushed, Target, differences, listing, upload
from msgrpo_hub.rendering.scores_svg import Bar, scores_svg

TABLE = "leaderboard.parquet"
"""Marks a results dataset: one row per run."""

PICTURE = "scores.svg"

log = logging.getLogger(__name__)

_FIGURES = ("reward", "success", "luck_adjusted")
_PLAIN = ("normalised", "regret_per_step", "optimal_decisions", "unreadable_rate", "truncated_rate", "illegal_rate")
_COUNTS = ("decisions", "steps", "prompt_tokens", "reply_tokens")
_PLAYER = ("kind", "base", "base_commit", "adapter", "adapter_commit", "mode")
_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "player", *_PLAYER)),
        ("temperature", pa.float64()),
        ("max_new_tokens", pa.int64()),
        *((name, pa.string()) for name in ("suite", "split")),
        ("episodes", pa.int64()),
        *((f"{name}{end}", pa.float64()) for name in _FIGURES for end in ("", "_low", "_high")),
        *((name, pa.float64()) for name in _PLAIN),
        *((name, pa.bool_()) for name in ("above_optimum", "plays")),
        *((name, pa.float64()) for name in ("silent", "random")),
        ("reference", pa.string()),
        ("reference_reward", pa.float64()),
        *((name, pa.int64()) for name in (*_COUNTS, "harness")),
        *((name, pa.string()) for name in ("task_hash", "run", "folder", "identity", "prompt_format", "engine")),
        *((name, pa.int64()) for name in ("rank_best", "rank_worst")),
    ]
)


def push_results(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    runs: Collection[Path] | None = None,
) -> Pushed:
    """Adds the runs of a folder to a results dataset, in one commit.

    Pushing the same runs again makes no commit. After merging pull requests, the owner of a dataset updates its table and
    card by pushing any runs, for example a download of the dataset itself.

    Args:
        folder: the output folder of `msgrpo eval --output-dir`.
        repo_id: `USER/NAME` of the dataset; created if missing.
        private: visibility of a new dataset; None uses the Hub's setting. An existing dataset must agree.
        revision: a branch; None is main.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        create_pr: open a pull request instead, which holds runs only.
        commit_message: title of the commit.
        runs: the folders of the runs to push; None is all in `folder`.

    Returns:
        The dataset, the commit and what was sent.

    Raises:
        UserError: a run is incomplete or does not replay; the dataset has a different run with the same hash; a file must not
            leave this machine; or the Hub refuses.
    """
    target = Target(repo_id=repo_id, kind="dataset", private=private, revision=revision, token=token, create_pr=create_pr)
    own = own_runs(Path(folder), runs)
    with TemporaryDirectory() as staged:
        _stage(own, Path(staged))
        message = commit_message or f"Results of {', '.join(sorted({result.player for result in own.values()}))}"[:120]
        prepare = partial(_prepare, own, target, Path(staged))
        return upload(Path(staged), target, message=message, prepare=prepare)


def stage_results(
    folder: str | Path,
    repo_id: str,
    into: Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
) -> None:
    """Writes what `push_results` would send now into a folder. Arguments as for `push_results`."""
    target = Target(repo_id=repo_id, kind="dataset", revision=revision, token=token, create_pr=create_pr)
    runs = own_runs(Path(folder))
    with hub_errors(repo_id):
        try:
            head = str(target.api.repo_info(repo_id, repo_type="dataset", revision=revision).sha)
            there = listing(target, head)
        except RepositoryNotFoundError:
            head, there = "", {}
        _prepare(runs, target, into, head, there)


def own_runs(folder: Path, only: Collection[Path] | None = None) -> dict[str, Result]:
    """The runs to push, by place. Raises `UserError` for the first run that does not replay or is misplaced."""
    board = read_folder(folder, only)
    for name, why in board.refused.items():
        raise UserError(f"{name!r} is not pushed: {why}; play it again or move it away (`msgrpo verify {folder}` shows details)")
    runs: dict[str, Result] = {}
    for result in board.results:
        try:
            runs[place(result.folder)] = result
        except UserError as error:
            raise UserError(f"{str(result.folder)!r} is not pushed: {error}") from error
    return runs


def _prepare(runs: Mapping[str, Result], target: Target, folder: Path, head: str, there: Mapping[str, RepoFile]) -> None:
    """Writes the runs that the dataset lacks at a commit and, except for a pull request, the table and card of all runs."""
    others = [name for name in sorted(there) if not name.startswith(f"{RUNS}/") and name not in ("README.md", ".gitattributes")]
    others += runs_among(there.values())[1]
    if others and TABLE not in there:  # runs without a table came by a pull request
        raise UserError(f"{target.repo_id!r} holds something else ({others[0]}): name another repository")
    equal = {name: result for name, result in runs.items() if not differences(_files(name, result), there)}
    published = read_published(target, head, there, without=equal)
    known = {run_hash(result.config): result for result in [*published.results, *equal.values()]}
    new = {name: result for name, result in runs.items() if run_hash(result.config) not in known}
    for name, result in runs.items():
        if name not in new and not same_play(known[run_hash(result.config)], result):
            raise UserError(f"{target.repo_id!r} has a different run at {name!r}: remove it first if yours should replace it")
    for name, why in published.refused.items():
        log.warning("not listed: %s: %s", name, why)
    _stage(new, folder)
    if target.create_pr:
        return
    results = ranked([*published.results, *equal.values(), *new.values()])
    board = Leaderboard(source=target.repo_id, commit=head, results=results, refused=published.refused)
    pq.write_table(leaderboard_table(board), folder / TABLE, compression="zstd")
    (folder / PICTURE).write_text(results_picture(board), encoding="utf-8")
    (folder / "README.md").write_text(render_results(results_card(board)), encoding="utf-8")


def _stage(runs: Mapping[str, Result], folder: Path) -> None:
    """Makes a folder hold the files of these runs and no others."""
    shutil.rmtree(folder / RUNS, ignore_errors=True)
    for name, result in runs.items():
        (folder / RUNS / name).mkdir(parents=True)
        for path, file in _files(name, result).items():
            (folder / path).write_bytes(file.read_bytes())


def _files(name: str, result: Result) -> dict[str, Path]:
    """The files of a run by their names in the dataset."""
    return {f"{RUNS}/{name}/{file}": result.folder / file for file in FILES}


# ---- table, picture and card of all runs


def results_picture(board: Leaderboard) -> str:
    """The mean rewards of all runs as bars, game by game."""
    groups = same_episodes(board.results)
    return scores_svg(
        {title: [_bar(board, result) for result in group] for title, group in zip(titles(groups), groups, strict=True)}
    )


def _bar(board: Leaderboard, result: Result) -> Bar:
    reward = result.summary["reward"]
    return Bar(name=board.name(result), mean=reward["mean"], low=reward.get("low"), high=reward.get("high"))


def leaderboard_table(board: Leaderboard) -> pa.Table:
    """One row per run, sorted by task and descending reward."""
    return pa.Table.from_pylist([_row(result, board.rank(result)) for result in board.results], schema=_COLUMNS)


def _row(result: Result, rank: list[int] | None) -> dict[str, Any]:
    config, summary, identity = result.config, result.summary, result.config["identity"]
    references = summary["references"]
    return {
        **{name: config[name] for name in ("task", "player", "suite", "split", "episodes", "harness", "task_hash")},
        **{name: summary[name] for name in (*_PLAIN, *_COUNTS, "above_optimum")},
        **{name: _text(identity.get(name)) for name in (*_PLAYER, "engine")},
        **{name: _number(identity.get(name)) for name in ("temperature", "max_new_tokens")},
        **{key: value for name in _FIGURES for key, value in _figure(name, summary[name]).items()},
        **dict(zip(("rank_best", "rank_worst"), rank or (None, None), strict=True)),
        "plays": plays(summary),
        **{name: references.get(name) for name in ("silent", "random")},
        "reference": next((name for name in references if name not in ("silent", "random")), None),
        "reference_reward": best_reference(references),
        "run": run_hash(config),
        "prompt_format": result.prompt_format,
        "folder": f"{RUNS}/{place(result.folder)}",
        "identity": json.dumps(identity, sort_keys=True),
    }


def _figure(name: str, value: Mapping[str, float | None] | None) -> dict[str, float | None]:
    figure = value or {}
    return {name: figure.get("mean"), f"{name}_low": figure.get("low"), f"{name}_high": figure.get("high")}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None


def results_card(board: Leaderboard) -> ResultsCard:
    """The card of a results dataset."""
    return ResultsCard(
        repo_id=board.source,
        table_file=TABLE,
        runs=len(board.results),
        tables=as_markdown(board, at="main"),
        refused=board.refused,
        example=board.results[0].task,
        command=eval_command(board.results, "runs/mine"),
    )
