"""A run kept on the Hub: another machine resumes it, a failure of the Hub does not end it, and it stays private."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from msgrpo_hub.downloads.fetching import base_of
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.hub.checkpoints import push_evaluation
from tests.hub.commands import FLAGS, msgrpo, refused
from tests.hub_server.app import COMMIT
from tests.hub_server.client import LOADS_MODELS, Finished, create, put
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

RUN = FLAGS.replace("--updates 1", "--updates 3").split()


def train(loopback: Loopback, folder: Path, *more: object) -> Finished:
    return loopback.owner.attempt(msgrpo, "train", *more, "--checkpoint-repo", "ada/kept", "--output-dir", folder)


def evaluate(loopback: Loopback, folder: Path, suite: object = "quick") -> Finished:
    flags = ("--suite", suite, "--checkpoint-repo", "ada/kept", "--output-dir", folder)
    return loopback.owner.attempt(msgrpo, "eval", "random", *flags)


def succeeds(finished: Finished) -> str:
    assert finished.code == 0, finished.err
    return finished.err


@pytest.fixture
def kept(loopback: Loopback, tmp_path: Path) -> Path:
    """A finished run of three updates, kept as ada/kept."""
    succeeds(train(loopback, tmp_path / "first", *RUN, "--checkpoint-every", 0))
    return tmp_path / "first"


def test_a_new_folder_gets_the_run_and_its_configuration_also_after_a_kill(
    loopback: Loopback, kept: Path, tmp_path: Path
) -> None:
    names = ("adapter/adapter_model.safetensors", "checkpoint.safetensors", "config.toml", "summary.json", "metrics.jsonl")
    second = tmp_path / "second"
    for killed in (False, True):
        if killed:  # the configuration arrives last: without it the folder counts as empty
            (second / "config.toml").unlink()
            (second / "checkpoint.safetensors").write_bytes(b"half")
        assert "training:" not in succeeds(train(loopback, second, "--resume"))
        assert [(second / name).read_bytes() for name in names] == [(kept / name).read_bytes() for name in names]


def test_a_run_is_one_commit_of_a_private_repository_that_resumes_anywhere(loopback: Loopback, kept: Path) -> None:
    files = loopback.files("ada/kept")
    assert loopback.stored("ada/kept").private
    assert len(loopback.commits("ada/kept")) == 1
    assert json.loads(files["msgrpo-run.json"]) == {"format": "msgrpo-run-v1"}
    everything = b"".join(files.values())
    assert str(kept).encode() not in everything
    assert str(pocket_path()).encode() not in everything
    for folder in ("adapter", "best"):
        assert base_of(json.loads(files[f"{folder}/adapter_config.json"]), "ada/kept") == str(pocket_path())
    assert not [name for name in files if "/." in f"/{name}"]


@pytest.mark.parametrize(
    ("where", "how", "why"),
    [(COMMIT, {"status": 500, "after": 1}, ""), ("PUT /_lfs/", {"status": 403}, "a transfer with 'ada/kept' failed")],
    ids=["a commit", "a large file"],
)
def test_a_failed_push_between_start_and_end_is_logged_and_made_up_for(
    loopback: Loopback, tmp_path: Path, where: str, how: dict[str, int], why: str
) -> None:
    loopback.fail(where, **how)  # the first commit is made at the start
    said = succeeds(train(loopback, tmp_path / "run", *RUN, "--checkpoint-every", 0))
    assert f"update 1 is not on the Hub yet: {why}" in said
    assert len(loopback.files("ada/kept")["metrics.jsonl"].splitlines()) == 3
    assert loopback.files("ada/kept")["summary.json"] == (tmp_path / "run" / "summary.json").read_bytes()


def test_a_finished_run_whose_last_push_failed_is_pushed_by_the_same_command_again(loopback: Loopback, tmp_path: Path) -> None:
    loopback.fail(COMMIT, status=500, after=1)  # the second commit is made at the end
    assert train(loopback, tmp_path / "run", *RUN).code == 2
    assert "summary.json" not in loopback.files("ada/kept")
    succeeds(train(loopback, tmp_path / "run", "--resume"))
    assert loopback.files("ada/kept")["summary.json"] == (tmp_path / "run" / "summary.json").read_bytes()


def test_a_public_repository_and_one_with_something_else_are_refused_before_training(loopback: Loopback, tmp_path: Path) -> None:
    loopback.owner.call(create, "ada/kept", private=False)
    assert "'ada/kept' is public, not private as requested" in refused(train(loopback, tmp_path / "run", *RUN))
    loopback.reset()
    loopback.owner.call(put, "ada/kept", {"notes.txt": b"mine"})
    assert "'ada/kept' holds something else" in refused(train(loopback, tmp_path / "other", *RUN))
    assert "--checkpoint-repo is for one seed" in refused(train(loopback, tmp_path / "set", *RUN, "--seeds", "0-1"))
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_the_kept_run_is_not_replaced_by_another_or_by_an_earlier_state(loopback: Loopback, kept: Path, tmp_path: Path) -> None:
    before, early = loopback.files("ada/kept"), tmp_path / "early"
    assert "'ada/kept' already holds a run: resume it with --resume" in refused(train(loopback, tmp_path / "other", *RUN))
    early.mkdir()
    shutil.copyfile(kept / "config.toml", early / "config.toml")
    assert "'ada/kept' holds 3 updates of this run, and" in refused(train(loopback, early, "--resume"))
    loopback.fail("GET /api/models/ada/kept", times=50)
    assert "HTTP 503" in refused(train(loopback, tmp_path / "second", "--resume", *RUN))  # and starts no run
    assert loopback.files("ada/kept") == before


def push_after(folder: Path, updates: int) -> None:
    """In the client's process: the push of a machine that resumed the run in this folder and has made some updates of it."""
    from types import SimpleNamespace

    from msgrpo_hub.hub.checkpoints import HubCheckpoints

    checkpoints = HubCheckpoints("ada/kept", 0, fetch=True)
    checkpoints.folder = folder
    checkpoints.on_update(SimpleNamespace(index=updates + 1))  # type: ignore[arg-type]


def test_of_two_machines_that_go_on_with_a_run_the_second_does_not_overwrite_the_first(
    loopback: Loopback, kept: Path, tmp_path: Path
) -> None:
    before, (first, second, third) = loopback.files("ada/kept"), (kept / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    other = second.replace(b'"seconds_acting": ', b'"seconds_acting": 1')  # the same update by another machine
    fourth = third.replace(b'"update": 3', b'"update": 4')

    def said(*lines: bytes) -> str:
        folder = Path(shutil.copytree(kept, tmp_path / "other", dirs_exist_ok=True))
        (folder / "metrics.jsonl").write_bytes(b"".join(lines))
        return succeeds(loopback.owner.attempt(push_after, folder, len(lines)))

    for lines in ([first], [first, other, third, fourth]):
        assert f"update {len(lines)} is not on the Hub yet: 'ada/kept' holds 3 updates of this run, and" in said(*lines)
        assert loopback.files("ada/kept") == before
    loopback.owner.call(put, "ada/kept", {"metrics.jsonl": first})
    loopback.overtake("ada/kept", {"metrics.jsonl": before["metrics.jsonl"]})  # just before the commit of this machine
    assert "update 2 is not on the Hub yet: 'ada/kept' holds 3 updates of this run, and" in said(first, other)
    assert loopback.files("ada/kept") == before | {"note-0": b"first"}
    assert "not on the Hub" not in said(first, second, third, fourth)
    assert loopback.files("ada/kept")["metrics.jsonl"] == first + second + third + fourth


def test_an_evaluation_fetches_the_tasks_that_its_folder_lacks_and_leaves_the_rest(loopback: Loopback, tmp_path: Path) -> None:
    succeeds(evaluate(loopback, tmp_path))
    before, tasks = loopback.files("ada/kept"), sorted(tmp_path.rglob("results.json"))
    assert len(tasks) > 1
    assert not [name for name in before if name.endswith("episodes.jsonl")]
    shutil.rmtree(tasks[0].parent)  # another machine with some of the results
    tasks[1].unlink()  # and an interrupted task
    assert "resuming the evaluation of ada/kept" in succeeds(evaluate(loopback, tmp_path))
    assert all(path.exists() for path in tasks)
    assert loopback.files("ada/kept") == before


def test_a_task_that_a_failed_server_left_unfinished_is_not_kept(loopback: Loopback, tmp_path: Path) -> None:
    succeeds(evaluate(loopback, tmp_path / "a"))
    before = loopback.files("ada/kept")
    [first, *_] = sorted((tmp_path / "a").rglob("results.json"))
    lacking = tmp_path / "b" / first.relative_to(tmp_path / "a")
    shutil.copytree(first.parent, lacking.parent)
    lacking.write_text(json.dumps(json.loads(first.read_text()) | {"complete": False, "failed": 2}))
    lacking.with_name("episodes.jsonl").write_text("played so far")
    succeeds(loopback.owner.attempt(push_evaluation, tmp_path / "b", "ada/other"))
    assert set(loopback.files("ada/other")) == {"msgrpo-run.json"}
    succeeds(loopback.owner.attempt(push_evaluation, tmp_path / "b", "ada/kept"))
    assert loopback.files("ada/kept") == before
