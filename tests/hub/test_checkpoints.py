"""A run kept on the Hub: another machine resumes it, a failure of the Hub does not end it, and it stays private."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from msgrpo_hub.downloads.fetching import base_of
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.hub.checkpoints import fetch_evaluation, push_evaluation, push_state
from tests.hub.commands import FLAGS, LAKE, SUITE, msgrpo, refused
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


# ---- training


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


def behind(folder: Path, updates: int) -> None:
    """In the client's process: the next push of a machine that has made fewer updates of the run."""
    from types import SimpleNamespace

    from msgrpo_hub.hub.checkpoints import HubCheckpoints

    checkpoints = HubCheckpoints("ada/kept", 0, fetch=True)
    checkpoints.folder = folder
    checkpoints.on_update(SimpleNamespace(index=updates + 1))  # type: ignore[arg-type]


def test_the_kept_run_is_not_replaced_by_another_or_by_an_earlier_state(loopback: Loopback, kept: Path, tmp_path: Path) -> None:
    before, slow, early = loopback.files("ada/kept"), tmp_path / "slow", tmp_path / "early"
    assert "'ada/kept' already holds a run: resume it with --resume" in refused(train(loopback, tmp_path / "other", *RUN))
    shutil.copytree(kept, slow)
    (slow / "metrics.jsonl").write_text((kept / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    said = succeeds(loopback.owner.attempt(behind, slow, 1))
    assert "update 1 is not on the Hub yet: 'ada/kept' holds 3 updates of this run" in said
    early.mkdir()
    shutil.copyfile(kept / "config.toml", early / "config.toml")
    assert "'ada/kept' holds 3 updates of this run, and" in refused(train(loopback, early, "--resume"))
    loopback.fail("GET /api/models/ada/kept", times=50)
    assert "HTTP 503" in refused(train(loopback, tmp_path / "second", "--resume", *RUN))  # and starts no run
    assert loopback.files("ada/kept") == before


def test_a_file_with_a_token_is_not_pushed_with_the_state(loopback: Loopback, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# hf_" + "a1B2" * 8)
    done = loopback.owner.attempt(push_state, tmp_path, "ada/other", ("config.toml",), "0 updates")
    assert "'config.toml' is not pushed because it contains a token" in done.message
    assert not loopback.hub.repositories


# ---- evaluations


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


def test_an_interrupted_task_is_neither_pushed_with_a_finished_one_nor_replaced(loopback: Loopback, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for episodes in (3, 4):
        (tmp_path / f"{episodes}.toml").write_text(SUITE.format(LAKE, episodes, hash_of(LAKE)))
    succeeds(evaluate(loopback, runs, tmp_path / "3.toml"))
    [finished] = runs.rglob("results.json")
    unfinished = Path(shutil.copytree(finished.parent, finished.parent.with_name("0123456789abcdef")))
    (unfinished / "results.json").unlink()
    (unfinished / "episodes.jsonl").write_text("played so far")
    succeeds(evaluate(loopback, runs, tmp_path / "4.toml"))
    there = loopback.files("ada/kept")
    assert not [name for name in there if unfinished.name in name]
    assert len([name for name in there if name.endswith("results.json")]) == 2
    assert (unfinished / "episodes.jsonl").read_text() == "played so far"


def test_results_without_some_episodes_are_kept_but_do_not_replace_finished_ones(loopback: Loopback, tmp_path: Path) -> None:
    succeeds(evaluate(loopback, tmp_path / "a"))
    before = loopback.files("ada/kept")
    [first, *_] = sorted((tmp_path / "a").rglob("results.json"))
    lacking = tmp_path / "b" / first.relative_to(tmp_path / "a")
    shutil.copytree(first.parent, lacking.parent)
    lacking.write_text(json.dumps(json.loads(first.read_text()) | {"complete": False, "failed": 2}))
    log = lacking.with_name("episodes.jsonl")
    log.write_text("played so far")
    for repo in ("ada/kept", "ada/other"):
        succeeds(loopback.owner.attempt(push_evaluation, tmp_path / "b", repo))
    assert loopback.files("ada/kept") == before
    kept = [content for name, content in loopback.files("ada/other").items() if name.endswith("/episodes.jsonl")]
    assert kept == [log.read_bytes()]  # no complete one is there: another machine continues from here
    succeeds(loopback.owner.attempt(fetch_evaluation, "ada/other", tmp_path / "c"))
    assert [path.read_bytes() for path in (tmp_path / "c").rglob("episodes.jsonl")] == kept
    log.write_text("played since")
    succeeds(loopback.owner.attempt(fetch_evaluation, "ada/other", tmp_path / "b"))
    assert log.read_text() == "played since"
    succeeds(evaluate(loopback, tmp_path / "b"))
    assert json.loads(lacking.read_text())["complete"] is True
    assert loopback.files("ada/kept") == before
