"""Publishing runs and reading the leaderboard made from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from msgrpo_hub.evaluation.results import load_result, run_hash, run_tables
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.hub.leaderboard import as_json, read_leaderboard
from msgrpo_hub.storage import run_files
from tests.hub.pushed_results import TASKS, kept

TASK = TASKS[0]


def read(repo: str, revision: str | None = None) -> dict[str, Any]:
    """Runs in the client's process."""
    return as_json(read_leaderboard(repo, revision=revision))


def one_run(folder: Path) -> dict[str, bytes]:
    """The files of the run of `greedy` on the first task."""
    return {name: content for name, content in kept(folder / "greedy").items() if f"/{TASK}/" in name}


def as_claimed(run: Path) -> Path:
    """Makes the tables and the summary of a run fit its configuration and the hash that its folder claims."""
    result = load_result(run)
    indices = range(len(result.episodes))
    run_files.write_tables(run, run_tables(result.config, indices, result.episodes, result.scores, result.steps))
    seeds = [episode.seed for episode in result.episodes]
    figures = summarise(result.task, seeds, result.scores, result.steps, int(run.name, 16))
    (run / "results.json").write_text(json.dumps({**result.summary, **figures, "run": run.name}))
    return run


def as_somebody(run: Path, **changes: Any) -> Path:
    """A copy of a run with another configuration, and a summary that fits it: only what cannot be verified is changed."""
    config = json.loads((run / "config.lock.json").read_text()) | changes
    copy = Path(shutil.copytree(run, run.parent / run_hash(config)))
    (copy / "config.lock.json").write_text(json.dumps(config))
    return as_claimed(copy)
