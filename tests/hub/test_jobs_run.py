"""Jobs that really run: their commands, in a new folder with the job's environment, on a machine that is taken away once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load

from tests.hub.conftest import msgrpo
from tests.hub.job_runner import WHEEL, Machine
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.jobs import Job
from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.skipif("CI" in os.environ, reason="whole jobs, which take minutes: run this file by itself")

warm = LOADS_MODELS

RUN = (
    "--preset quickstart --game FrozenLake-NotSlippery-v1 --updates 5 --groups 1 --group-size 8 --selected-per-group 4 "
    "--eval-every 2 --eval-episodes 1 --test-episodes 2 --temperature 2 --save-rollouts"
)
"""A run of five short updates."""
SUITE = "quick"
PACKAGE = ["--wheel", WHEEL] if WHEEL else []
"""What a job is given to install; see `job_runner`."""


def updates_there(loopback: Loopback, folder: Path, repo: str) -> int:
    """How many updates the checkpoint in a repository has."""
    stored = loopback.hub.repositories.get(("model", repo))
    blob = stored.head.files.get("checkpoint.safetensors") if stored else None
    if blob is None:
        return 0
    path = folder / "there.safetensors"
    path.write_bytes(blob.content)
    with safe_open(path, framework="np") as file:
        return int(json.loads(file.metadata()["progress"])["updates"])


def once(when: Callable[[], bool]) -> Callable[[Job], bool]:
    """Takes the machine of the first attempt away, when something is so."""
    return lambda job: job.attempts == 1 and when()


def train(loopback: Loopback, base: str, *more: object) -> Finished:
    return loopback.owner.attempt(msgrpo, "jobs", "train", *RUN.split(), *job_flags(base), *more)


def job_flags(base: str) -> list[str]:
    flags = f"--base {base} --flavor cpu-basic --push-to-hub ada/lake --attempts 2 --checkpoint-every 0"
    return [*flags.split(), *PACKAGE]


def assert_trained_as_if_uninterrupted(loopback: Loopback, tmp_path: Path) -> None:
    """The adapter on the Hub is that of the same run on this machine, and all the run's updates are in its repository."""
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


def test_a_training_whose_machine_is_taken_away_goes_on_from_the_hub(loopback: Loopback, base: str, tmp_path: Path) -> None:
    preempt = once(lambda: updates_there(loopback, tmp_path, "ada/lake-run") >= 2)
    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines", preempt=preempt)
    done = train(loopback, base)
    [job] = loopback.hub.jobs.values()
    assert done.code == 0, done.err
    assert (job.stage, job.attempts) == ("COMPLETED", 2)
    lines = "\n".join(job.lines)
    assert "the machine was taken away" in lines
    assert "resuming the run of ada/lake-run: " in lines
    assert "the machine was taken away" in done.err  # the log is followed
    assert_trained_as_if_uninterrupted(loopback, tmp_path)


def test_the_same_job_again_trains_nothing_and_pushes_nothing(loopback: Loopback, base: str, tmp_path: Path) -> None:
    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines")
    assert train(loopback, base).code == 0
    commits = [loopback.stored(repo).head.oid for repo in ("ada/lake", "ada/lake-run")]
    again = train(loopback, base)
    assert again.code == 0, again.err
    assert "training:" not in "\n".join(list(loopback.hub.jobs.values())[1].lines)
    assert [loopback.stored(repo).head.oid for repo in ("ada/lake", "ada/lake-run")] == commits


def test_an_evaluation_whose_machine_is_taken_away_plays_only_what_is_missing(loopback: Loopback, tmp_path: Path) -> None:
    def some_there() -> bool:
        stored = loopback.hub.repositories.get(("model", "ada/board-run"))
        return bool(stored and any(name.endswith("/results.json") for name in stored.head.files))

    loopback.hub.runner = Machine(loopback=loopback, folder=tmp_path / "machines", preempt=once(some_there))
    flags = ["--flavor", "cpu-basic", "--push-to-hub", "ada/board", "--attempts", 2, "--private", *PACKAGE]
    done = loopback.owner.attempt(msgrpo, "jobs", "eval", "random", "greedy", "--suite", SUITE, *flags)
    assert done.code == 0, done.err
    [job] = loopback.hub.jobs.values()
    assert (job.stage, job.attempts) == ("COMPLETED", 2)
    assert "resuming the evaluation of ada/board-run: " in "\n".join(job.lines)
    alone = loopback.owner.attempt(msgrpo, "eval", "random", "greedy", "--suite", SUITE, "--output-dir", tmp_path / "alone")
    assert alone.code == 0, alone.err
    expected = {
        f"results/{path.relative_to(tmp_path / 'alone')}": path.read_bytes()
        for path in (tmp_path / "alone").rglob("*")
        if path.is_file() and path.name != "timing.json"
    }
    pushed = {name: content for name, content in loopback.files("ada/board", "dataset").items() if name.startswith("results/")}
    assert pushed == expected
    assert loopback.stored("ada/board", "dataset").private
