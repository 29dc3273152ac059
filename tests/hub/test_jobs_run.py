"""A job that really runs: its command, in new folders with the job's environment, on a machine that is lost once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load

from tests.hub.commands import LAKE, head, msgrpo
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.jobs import Job
from tests.hub_server.lanes import QUIET, Loopback

pytestmark = pytest.mark.skipif("CI" in os.environ, reason="whole jobs, which take minutes: run this file by itself")

warm = LOADS_MODELS

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds for an attempt."""
RUN = (
    f"--preset quickstart --game {LAKE} --updates 5 --groups 1 --group-size 8 --selected-per-group 4 "
    "--eval-every 2 --eval-episodes 1 --test-episodes 2 --temperature 2 --save-rollouts"
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Runs jobs with this Python instead of uv. Each attempt gets a new folder as its home, working folder and cache."""

    loopback: Loopback
    folder: Path

    def __call__(self, job: Job) -> int:
        place = self.folder / job.id / str(job.attempts)
        place.mkdir(parents=True)
        command = job.spec["command"]
        assert command[:2] == ["uv", "run"]
        given = self.loopback.machine.environment
        environment = {name: value for name, value in given.items() if name.endswith("_PROXY")}
        environment |= {"PATH": os.environ["PATH"], "HOME": str(place), "HF_HOME": str(place / ".cache"), "TMPDIR": str(place)}
        process = subprocess.Popen(
            [sys.executable, "-m", *command[command.index("--module") + 1 :]],
            cwd=place,
            env={**environment, **QUIET, "PYTHONPATH": str(ROOT), **job.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, args=(job, process), daemon=True).start()
        assert process.stdout
        for line in process.stdout:
            job.lines.append(line.rstrip("\n"))
        return process.wait()

    def _watch(self, job: Job, process: subprocess.Popen[str]) -> None:
        """Kills the first attempt once the repository has two updates."""
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            there = self.loopback.hub.repositories.get(("model", "ada/lake-run"))
            metrics = there.head.files.get("metrics.jsonl") if there else None
            lost = job.attempts == 1 and metrics and len(metrics.content.splitlines()) >= 2
            if lost or time.monotonic() > end:
                job.lines.append("the machine was lost")
                os.killpg(process.pid, 9)
                return
            time.sleep(0.1)


def train(loopback: Loopback, base: str) -> Finished:
    flags = f"--base {base} --flavor cpu-basic --push-to-hub ada/lake --attempts 2 --checkpoint-every 0"
    return loopback.owner.attempt(msgrpo, "jobs", "train", *RUN.split(), *flags.split())


def test_a_training_whose_machine_is_lost_continues_from_the_hub_and_once_done_does_nothing(
    loopback: Loopback, base: str, tmp_path: Path
) -> None:
    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines")
    done = train(loopback, base)
    [job] = loopback.hub.jobs.values()
    assert done.code == 0, done.err
    assert (job.stage, job.attempts) == ("COMPLETED", 2)
    assert "resuming the run of ada/lake-run: " in "\n".join(job.lines)
    assert "the machine was lost" in done.err  # the log is followed
    alone = loopback.owner.attempt(msgrpo, "train", *RUN.split(), "--output-dir", tmp_path / "alone")
    assert alone.code == 0, alone.err
    weights = load(loopback.files("ada/lake")["adapter_model.safetensors"])
    expected = load((tmp_path / "alone" / "adapter" / "adapter_model.safetensors").read_bytes())
    assert weights.keys() == expected.keys()
    assert all(weights[name].equal(expected[name]) for name in weights)
    assert len([name for name in loopback.files("ada/lake-run") if name.startswith("rollouts/default/train-")]) == 5

    # The same job again trains nothing and pushes nothing.
    commits = [head(loopback, repo) for repo in ("ada/lake", "ada/lake-run")]
    assert train(loopback, base).code == 0
    assert "training:" not in "\n".join(list(loopback.hub.jobs.values())[1].lines)
    assert [head(loopback, repo) for repo in ("ada/lake", "ada/lake-run")] == commits
