"""Changes to stored runs, and the verdict of verification on them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.episode import Step
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import run_summary
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.storage import run_files

SLIPPERY, SNAKE = "FrozenLake-Slippery-v1", "Snake-Short-v1"
SUITE = Suite(name="mine", tasks=(SLIPPERY, SNAKE, f"{SNAKE}:rotated"), episodes=32)

Rows = list[dict[str, Any]]


def copied(played: Path, to: Path, task: str) -> Result:
    [folder] = [path.parent for path in played.rglob("results.json") if task.replace(":", "-") == path.parts[-3]]
    shutil.copytree(folder, to / "run" / folder.name)
    return load_result(to / "run" / folder.name)


def found(result: Result) -> str:
    """All problems that verification finds in a run; empty if there are none."""
    [row] = verify(result.folder)
    return "; ".join(row["problems"])


def rewrite(file: Path, change: Callable[[Rows], Any]) -> None:
    """Rewrites a Parquet file with pyarrow; a change may return other rows."""
    table = pq.read_table(file)
    rows = table.to_pylist()
    other = change(rows)
    pq.write_table(pa.Table.from_pylist(rows if other is None else other, schema=table.schema), file)


def rewrite_json(result: Result, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    file = result.folder / name
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


def renamed(result: Result, config: dict[str, Any]) -> Result:
    """A run with another configuration, in a folder with the name of its hash."""
    folder = result.folder.rename(result.folder.with_name(run_hash(config)))
    (folder / "config.lock.json").write_text(json.dumps(config))
    return load_result(folder)


def forged(result: Result, dropped: int | None = None, **changes: Any) -> Result:
    """A run with another configuration, perhaps without an episode; its hash, folder, tables and summary agree with that.

    The replies of a language model have numbers of tokens.
    """
    run = renamed(result, result.config | changes)
    if run.identity.get("kind") == "language model":
        run.episodes[:] = [replace(episode, steps=tuple(map(counted, episode.steps))) for episode in run.episodes]
        run.scores[:] = [judged(episode)[1] for episode in run.episodes]
        run.summary["near_draws"] = 3
    kept = [index for index in range(len(run.episodes)) if index != dropped]
    episodes, scores, steps = ([of[index] for index in kept] for of in (run.episodes, run.scores, run.steps))
    run_files.write_tables(run.folder, run_tables(run.config, kept, episodes, scores, steps))
    summary = run_summary(run.config, episodes, scores, steps, run.summary.get("near_draws"))
    (run.folder / "results.json").write_text(json.dumps(summary))
    return load_result(run.folder)


def counted(step: Step) -> Step:
    return replace(step, completion=replace(step.completion, usage=(40, 8)))


def put(row: int, **values: Any) -> Callable[[Rows], None]:
    """Changes values of a row; a function gets the old value."""

    def change(rows: Rows) -> None:
        rows[row] |= {name: value(rows[row][name]) if callable(value) else value for name, value in values.items()}

    return change


def other_reply(rows: Rows) -> None:
    rows[0]["reply"] = f"<action>{next(action for action in ('Left', 'Down') if action != rows[0]['action'])}</action>"


def other_action_and_reply(rows: Rows) -> None:
    other_reply(rows)
    rows[0]["action"] = rows[0]["reply"].removeprefix("<action>").removesuffix("</action>")


def other_value(kind: pa.DataType, old: Any) -> Any:
    if pa.types.is_boolean(kind):
        return not old
    if pa.types.is_list(kind):
        return [*(old or []), other_value(kind.value_type, None)]
    if pa.types.is_struct(kind):
        return {field.name: "x" for field in kind}
    return "x" if pa.types.is_string(kind) else (old or 0) + 1


def other_values(kind: pa.DataType, old: Any) -> list[Any]:
    """None, another value, an impossible number, and no value in a list."""
    more = {"double": math.nan, "int32": -1, "int64": -1}.get(str(kind), [] if pa.types.is_list(kind) else None)
    return list({repr(value): value for value in (None, other_value(kind, old), more) if repr(value) != repr(old)}.values())


def paths(values: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all values in nested dictionaries."""
    if isinstance(values, dict):
        return [path for key, value in values.items() for path in paths(value, (*at, key))]
    return [at]


def changed_at(path: tuple[str, ...], change: Callable[[Any], Any] | None) -> Callable[[dict[str, Any]], None]:
    """Changes or removes the value at a path."""

    def change_it(values: dict[str, Any]) -> None:
        for key in path[:-1]:
            values = values[key]
        old = values.pop(path[-1])
        if change:
            values[path[-1]] = change(old)

    return change_it
