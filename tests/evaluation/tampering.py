"""A run, a copy of it to tamper with, and what verification says of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import run_summary
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.storage import run_files

SLIPPERY, SNAKE = "FrozenLake-Slippery-v1", "Snake-Short-v1"
SUITE = Suite(name="mine", tasks=(SLIPPERY, SNAKE, f"{SNAKE}:rotated"), episodes=32)


def copied(played: Path, to: Path, task: str) -> Result:
    [folder] = [path.parent for path in played.rglob("results.json") if task.replace(":", "-") == path.parts[-3]]
    shutil.copytree(folder, to / "run" / folder.name)
    return load_result(to / "run" / folder.name)


def found(result: Result) -> str:
    """What verification says of a run, as one text; empty where all agrees."""
    [row] = verify(result.folder)
    return "; ".join(row["problems"])


Rows = list[dict[str, Any]]


def rewrite(result: Result, name: str, change: Callable[[Rows], Any]) -> None:
    """Rewrites a Parquet file with pyarrow; a change may return other rows."""
    file = result.folder / f"{name}.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    other = change(rows)
    pq.write_table(pa.Table.from_pylist(rows if other is None else other, schema=table.schema), file)


def rewrite_json(result: Result, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    file = result.folder / name
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


def forged(result: Result, change: Callable[[dict[str, Any]], Any], dropped: int | None = None) -> Result:
    """A run with another configuration, and perhaps without an episode. Hash, folder, tables and summary are made anew for it."""
    config = json.loads(json.dumps(result.config))
    change(config)
    kept = [index for index in range(len(result.episodes)) if index != dropped]
    episodes, scores, steps = ([of[index] for index in kept] for of in (result.episodes, result.scores, result.steps))
    folder = result.folder.rename(result.folder.with_name(run_hash(config)))
    (folder / "config.lock.json").write_text(json.dumps(config))
    run_files.write_tables(folder, run_tables(config, kept, episodes, scores, steps))
    summary = run_summary(config, episodes, scores, steps, result.summary.get("near_draws"))
    (folder / "results.json").write_text(json.dumps(summary))
    return load_result(folder)


def put(row: int, **values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[row].update(values)


def paths(values: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where the figures of a summary are."""
    if isinstance(values, dict):
        return [path for key, value in values.items() for path in paths(value, (*at, key))]
    return [at]
