"""Jobs that really run: their commands, in a new folder with the job's environment, on a machine that is lost once.

This Python runs the command of a job without uv, to install no packages from an index. With `JOB_UV`, the path of a uv, and
`JOB_WHEEL`, a wheel of the package, uv runs it and installs the wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from safetensors import safe_open
from safetensors.torch import load

from tests.hub.commands import LAKE, files_of, head, msgrpo
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.jobs import Job
from tests.hub_server.lanes import QUIET, Loopback

pytestmark = pytest.mark.skipif("CI" in os.environ, reason="whole jobs, which take minutes: run this file by itself")

warm = LOADS_MODELS

ROOT = Path(__file__).parents[2]
UV, WHEEL = os.environ.get("JOB_UV"), os.environ.get("JOB_WHEEL")
PACKAGE = ["--wheel", WHEEL] if WHEEL else []
PATIENCE = 300.0
"""Seconds for an attempt."""
RUN = (
    f"--preset quickstart --game {LAKE} --updates 5 --groups 1 --group-size 8 --selected-per-group 4 "
    "--eval-every 2 --eval-episodes 1 --test-episodes 2 --temperature 2 --save-rollouts"
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Runs jobs. Each attempt gets a new folder as its home, working folder and cache."""

    loopback: Loopback
    folder: Path
    lose_when: Callable[[], bool] = lambda: False
    """Checked during the first attempt: kill its processes?"""

    def __call__(self, job: Job) -> int:
        place = self.folder / job.id / str(job.attempts)
        place.mkdir(parents=True)
        command = self._with_uv(job, place) if UV else job.spec["command"]
        if not UV:
            assert command[:2] == ["uv", "run"]
            command = [sys.executable, "-m", *command[command.index("--module") + 1 :]]
        given = self.loopback.machine.environment
        environment = {name: value for name, value in given.items() if name.startswith(("MSGRPO_HUB_", "NO_PROXY"))}
        environment |= {name: value for name, value in os.environ.items() if name.startswith("UV_")}
        environment |= {"PATH": os.environ["PATH"], "HOME": str(place), "HF_HOME": str(place / ".cache"), "TMPDIR": str(place)}
        path = os.pathsep.join([given["PYTHONPATH"], *([] if UV else [str(ROOT)])])
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**environment, **QUIET, "PYTHONPATH": path, **job.environment},
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

    def _with_uv(self, job: Job, place: Path) -> list[str]:
        """The command with the wheel from its volume, and this Python instead of the image's."""
        [volume] = job.spec["volumes"]
        found = HfApi(self.loopback.endpoint, token=job.environment["HF_TOKEN"]).snapshot_download(
            volume["source"], allow_patterns=f"{volume['path']}/*", local_dir=place / "volume"
        )
        command = [word.replace(volume["mountPath"], f"{found}/{volume['path']}") for word in job.spec["command"]]
        command[command.index("--python") + 1] = sys.executable
        return [str(UV), *command[1:]]

    def _watch(self, job: Job, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            if (job.attempts == 1 and self.lose_when()) or time.monotonic() > end:
                job.lines.append("the machine was lost")
                os.killpg(process.pid, 9)
                return
            time.sleep(0.1)


def updates_there(loopback: Loopback, folder: Path, repo: str) -> int:
    """The number of updates in the checkpoint of a repository."""
    stored = loopback.hub.repositories.get(("model", repo))
    blob = stored.head.files.get("checkpoint.safetensors") if stored else None
    if blob is None:
        return 0
    path = folder / "there.safetensors"
    path.write_bytes(blob.content)
    with safe_open(path, framework="np") as file:
        return int(json.loads(file.metadata()["progress"])["updates"])


def train(loopback: Loopback, base: str) -> Finished:
    flags = f"--base {base} --flavor cpu-basic --push-to-hub ada/lake --attempts 2 --checkpoint-every 0"
    return loopback.owner.attempt(msgrpo, "jobs", "train", *RUN.split(), *flags.split(), *PACKAGE)


def test_a_training_whose_machine_is_lost_continues_from_the_hub_and_once_done_does_nothing(
    loopback: Loopback, base: str, tmp_path: Path
) -> None:
    def some_updates() -> bool:
        return updates_there(loopback, tmp_path, "ada/lake-run") >= 2

    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines", lose_when=some_updates)
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
    assert max((weights[name] - expected[name]).abs().max().item() for name in weights) == 0
    kept = loopback.files("ada/lake-run")
    assert [json.loads(line)["update"] for line in kept["metrics.jsonl"].splitlines()] == [1, 2, 3, 4, 5]
    assert len([name for name in kept if name.startswith("rollouts/default/train-")]) == 5
    own = json.loads((tmp_path / "alone" / "summary.json").read_text())
    assert json.loads(kept["summary.json"])["adapter_update"] == own["adapter_update"]
    assert loopback.stored("ada/lake-run").private
    assert len(loopback.commits("ada/lake-run")) == 1  # the history is squashed

    # The same job again trains nothing and pushes nothing.
    commits = [head(loopback, repo) for repo in ("ada/lake", "ada/lake-run")]
    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines")
    again = train(loopback, base)
    assert again.code == 0, again.err
    assert "training:" not in "\n".join(list(loopback.hub.jobs.values())[1].lines)
    assert [head(loopback, repo) for repo in ("ada/lake", "ada/lake-run")] == commits


def test_an_evaluation_whose_machine_is_lost_plays_only_the_rest(loopback: Loopback, tmp_path: Path) -> None:
    def some_results() -> bool:
        stored = loopback.hub.repositories.get(("model", "ada/board-run"))
        return bool(stored and any(name.endswith("/results.json") for name in stored.head.files))

    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines", lose_when=some_results)
    command = ("eval", "random", "greedy", "--suite", "quick")
    flags = ["--flavor", "cpu-basic", "--push-to-hub", "ada/board", "--attempts", 2, "--private", *PACKAGE]
    done = loopback.owner.attempt(msgrpo, "jobs", *command, *flags)
    assert done.code == 0, done.err
    [job] = loopback.hub.jobs.values()
    assert (job.stage, job.attempts) == ("COMPLETED", 2)
    assert "resuming the evaluation of ada/board-run: " in "\n".join(job.lines)
    alone = loopback.owner.attempt(msgrpo, *command, "--output-dir", tmp_path / "alone")
    assert alone.code == 0, alone.err
    expected = {f"results/{name}": content for name, content in files_of(tmp_path / "alone").items()}
    pushed = {name: content for name, content in loopback.files("ada/board", "dataset").items() if name.startswith("results/")}
    assert pushed == expected
    assert loopback.stored("ada/board", "dataset").private
