"""A run that reports to Trackio leaves two traces per update in its database: the best and the worst episode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("trackio")

READ = """
import json
from trackio.sqlite_storage import SQLiteStorage
[run] = SQLiteStorage.get_runs("msgrpo")
print("TRACES", json.dumps(SQLiteStorage.get_traces("msgrpo", run)))
print("STEPS", json.dumps([line["step"] for line in SQLiteStorage.get_logs("msgrpo", run) if "reward" in line]))
"""


def test_trackio_has_the_metrics_and_the_best_and_the_worst_episode_of_every_update(flags: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    folder, command = tmp_path / "run", [sys.executable, "-m", "msgrpo_hub", "train", *flags, "--report-to", "trackio"]
    more = ["--updates", "2", "--eval-every", "0", "--test-episodes", "0", "--save-rollouts", "--output-dir", str(folder)]
    subprocess.run([*command, *more], check=True, env=environment)
    told = subprocess.run([sys.executable, "-c", READ], check=True, env=environment, capture_output=True, text=True).stdout
    found = {line.partition(" ")[0]: json.loads(line.partition(" ")[2]) for line in told.splitlines()}
    assert found["STEPS"] == [1, 2]
    assert {(trace["step"], trace["key"]) for trace in found["TRACES"]} == {
        (update, f"episode/{end}") for update in (1, 2) for end in ("best", "worst")
    }
    for trace in found["TRACES"]:
        rows = pq.read_table(folder / f"rollouts/default/train-{trace['step']:05d}.parquet").to_pylist()
        rewards = [row["reward"] for row in rows]
        assert trace["metadata"]["reward"] == (max if trace["key"].endswith("best") else min)(rewards)
        steps = pq.read_table(folder / f"rollouts/steps/train-{trace['step']:05d}.parquet").to_pylist()
        key = ("seed", "member")
        replies = [row["reply"] for row in steps if all(row[name] == trace["metadata"][name] for name in key)]
        assert [message["content"] for message in trace["messages"] if message["role"] == "assistant"] == replies
        assert trace["messages"][0]["role"] == "system"
