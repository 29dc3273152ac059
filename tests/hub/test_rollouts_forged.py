"""A record of a training run's episodes that does not replay is found, and not loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.verify import verify_rollouts
from msgrpo_hub.hub.rollouts import load_rollouts
from msgrpo_hub.storage.shards import shards
from tests.hub.pushed_rollouts import EPISODES

Rows = list[dict[str, Any]]
Change = Callable[[Rows, Rows], Any]
"""Changes the rows of episodes and of steps."""


def copy_of(saved: Path, folder: Path, change: Change) -> Path:
    """The episodes of the run's first update with changed rows."""
    tables = [pq.ParquetFile(path).read() for path in shards(saved)[0]]
    heads, steps = (table.to_pylist() for table in tables)
    change(heads, steps)
    for config, table, rows in zip(("default", "steps"), tables, (heads, steps), strict=True):
        (folder / config).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / config / "train-00001.parquet")
    return folder


def test_the_episodes_of_a_run_pass(saved: Path) -> None:
    [row] = verify_rollouts(saved)
    assert (row["episodes"], row["problems"], row["unchecked"]) == (EPISODES, [], [])


def forged_success(heads: Rows, steps: Rows) -> None:
    lost = next(head for head in heads if not head["success"])
    for row in (lost, *(row for row in steps if (row["seed"], row["member"]) == (lost["seed"], lost["member"]))):
        row["success"] = True


def forged_reply(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    next(row for row in steps if row["action"])["reply"] = "?"


def forged_reward(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    steps[0]["reward"] += 1


FORGED: dict[str, tuple[Change, str]] = {
    "a success": (forged_success, "the record has success = True, where the rules say otherwise"),
    "a reply": (forged_reply, "its reply does not parse to"),
    "a reward": (forged_reward, "where the rules give 0"),
}


@pytest.mark.parametrize(("change", "words"), FORGED.values(), ids=FORGED)
def test_a_forged_record_is_found_and_not_loaded(change: Change, words: str, saved: Path, tmp_path: Path) -> None:
    assert len(load_rollouts(copy_of(saved, tmp_path / "untouched", lambda *_: None))) == 16
    folder = copy_of(saved, tmp_path / "forged", change)
    assert words in "; ".join(problem for row in verify_rollouts(folder) for problem in row["problems"])
    with pytest.raises(UserError, match=words):
        load_rollouts(folder)
