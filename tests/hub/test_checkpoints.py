"""A run kept on the Hub: another machine goes on with it, a bad moment of the Hub does not end it, and it stays private."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from msgrpo_hub.downloads.fetching import base_of
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.hub.checkpoints import fetch_evaluation, push_evaluation, push_state
from tests.hub.conftest import FLAGS, msgrpo, refused
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

RUN = FLAGS.replace("--updates 1", "--updates 3").split()


def make_public(repo: str) -> None:
    HfApi().create_repo(repo, private=False)


def put_note(repo: str) -> None:
    HfApi().create_repo(repo, private=True)
    HfApi().upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id=repo)


def train(loopback: Loopback, folder: Path, *more: object) -> Finished:
    return loopback.owner.attempt(msgrpo, "train", *more, "--checkpoint-repo", "ada/kept", "--output-dir", folder)


@pytest.fixture
def kept(loopback: Loopback, tmp_path: Path) -> Path:
    """A finished run of three updates, which is kept as ada/kept."""
    done = train(loopback, tmp_path / "first", *RUN, "--checkpoint-every", 0)
    assert done.code == 0, done.err
    return tmp_path / "first"


def test_a_new_folder_gets_the_run_and_its_configuration(loopback: Loopback, kept: Path, tmp_path: Path) -> None:
    again = train(loopback, tmp_path / "second", "--resume")
    assert again.code == 0, again.err
    assert "training:" not in again.err
    names = ("adapter/adapter_model.safetensors", "checkpoint.safetensors", "config.toml", "summary.json", "metrics.jsonl")
    for name in names:
        assert (tmp_path / "second" / name).read_bytes() == (kept / name).read_bytes()
    assert not [path for path in (tmp_path / "second").iterdir() if path.name.startswith(".fetched")]


def test_a_run_is_one_commit_of_a_private_repository_that_resumes_anywhere(loopback: Loopback, kept: Path) -> None:
    assert loopback.stored("ada/kept").private
    assert len(loopback.commits("ada/kept")) == 1
    assert json.loads(loopback.files("ada/kept")["msgrpo-run.json"]) == {"format": "msgrpo-run-v1"}
    everything = b"".join(loopback.files("ada/kept").values())
    assert str(kept).encode() not in everything
    assert str(pocket_path()).encode() not in everything
    for folder in ("adapter", "best"):
        settings = json.loads(loopback.files("ada/kept")[f"{folder}/adapter_config.json"])
        assert base_of(settings, "ada/kept") == str(pocket_path())
    assert not [name for name in loopback.files("ada/kept") if "/." in f"/{name}"]


def test_a_failed_push_between_start_and_end_is_logged_and_made_up_for(loopback: Loopback, tmp_path: Path) -> None:
    loopback.fail("commit_fails", after=1, times=1)  # the first commit is that of the start
    done = train(loopback, tmp_path / "run", *RUN, "--checkpoint-every", 0)
    assert done.code == 0, done.err
    assert "update 1 is not on the Hub yet: " in done.err
    assert len(loopback.files("ada/kept")["metrics.jsonl"].splitlines()) == 3


def test_a_public_repository_and_one_with_something_else_are_refused_before_training(loopback: Loopback, tmp_path: Path) -> None:
    loopback.owner.call(make_public, "ada/kept")
    assert "'ada/kept' is public, not private as requested" in refused(train(loopback, tmp_path / "run", *RUN))
    loopback.reset()
    loopback.owner.call(put_note, "ada/kept")
    assert "'ada/kept' holds something else" in refused(train(loopback, tmp_path / "other", *RUN))
    for name in ("run", "other"):
        assert not (tmp_path / name / "metrics.jsonl").exists()


def test_another_run_does_not_replace_the_one_that_is_kept(loopback: Loopback, kept: Path, tmp_path: Path) -> None:
    before = loopback.files("ada/kept")
    done = train(loopback, tmp_path / "other", *RUN)
    assert "'ada/kept' already holds a run: resume it with --resume" in refused(done)
    assert loopback.files("ada/kept") == before
    assert kept.exists()


def test_a_finished_run_whose_last_push_failed_is_pushed_by_the_same_command_again(loopback: Loopback, tmp_path: Path) -> None:
    loopback.fail("commit_fails", after=1, times=1)  # the first commit is that of the start, the second that of the end
    assert train(loopback, tmp_path / "run", *RUN).code == 2
    assert "summary.json" not in loopback.files("ada/kept")
    again = train(loopback, tmp_path / "run", "--resume")
    assert again.code == 0, again.err
    assert loopback.files("ada/kept")["summary.json"] == (tmp_path / "run" / "summary.json").read_bytes()


def test_an_evaluation_takes_from_the_repository_what_its_folder_lacks_and_leaves_the_rest(
    loopback: Loopback, tmp_path: Path
) -> None:
    def evaluate(suite: str) -> Finished:
        kept = ["--checkpoint-repo", "ada/kept", "--output-dir", tmp_path / "runs"]
        return loopback.owner.attempt(msgrpo, "eval", "random", "--suite", suite, *kept)

    assert evaluate("quick").code == 0
    before = loopback.files("ada/kept")
    tasks = sorted((tmp_path / "runs").rglob("results.json"))
    assert len(tasks) > 1
    assert not [name for name in before if name.endswith("episodes.jsonl")]
    shutil.rmtree(tasks[0].parent)  # another machine, with only some of the results
    tasks[1].unlink()  # and with a task that was interrupted
    again = evaluate("quick")
    assert again.code == 0, again.err
    assert "resuming the evaluation of ada/kept" in again.err
    assert all(path.exists() for path in tasks)
    assert loopback.files("ada/kept") == before


def test_what_an_interrupted_task_has_here_is_newer_than_what_any_repository_has(loopback: Loopback, tmp_path: Path) -> None:
    """An unfinished task is neither pushed with another that ended nor fetched over the one that is here."""
    kept = ["--checkpoint-repo", "ada/kept", "--output-dir", tmp_path / "runs"]
    suites = {"one": 'episodes = 3\n[tasks]\n"{0}" = "{1}"', "two": 'episodes = 4\n[tasks]\n"{0}" = "{1}"'}
    for name, text in suites.items():
        (tmp_path / f"{name}.toml").write_text(text.format("FrozenLake-NotSlippery-v1", "3b5043755892e859"))
    assert loopback.owner.attempt(msgrpo, "eval", "random", "--suite", tmp_path / "one.toml", *kept).code == 0
    [finished] = (tmp_path / "runs").rglob("results.json")
    unfinished = Path(shutil.copytree(finished.parent, finished.parent.with_name("0123456789abcdef")))
    (unfinished / "results.json").unlink()
    (unfinished / "episodes.jsonl").write_text("what has been played so far")
    assert loopback.owner.attempt(msgrpo, "eval", "random", "--suite", tmp_path / "two.toml", *kept).code == 0
    there = loopback.files("ada/kept")
    assert not [name for name in there if unfinished.name in name]
    assert len([name for name in there if name.endswith("results.json")]) == 2
    assert (unfinished / "episodes.jsonl").read_text() == "what has been played so far"


def test_a_kill_while_the_run_is_fetched_leaves_no_run(loopback: Loopback, kept: Path, tmp_path: Path) -> None:
    """The configuration arrives last: without it the folder counts as empty, and the run is fetched again."""
    second = tmp_path / "second"
    assert train(loopback, second, "--resume").code == 0
    (second / "config.toml").unlink()
    (second / "checkpoint.safetensors").write_bytes(b"half")
    again = train(loopback, second, "--resume")
    assert again.code == 0, again.err
    assert (second / "checkpoint.safetensors").read_bytes() == (kept / "checkpoint.safetensors").read_bytes()


def test_a_hub_that_does_not_answer_ends_the_command_and_starts_no_run_anew(
    loopback: Loopback, kept: Path, tmp_path: Path
) -> None:
    before = loopback.files("ada/kept")
    loopback.fail("unavailable", where="GET /api/models/ada/kept", times=50)
    done = train(loopback, tmp_path / "second", "--resume", *RUN)
    assert "HTTP 503" in refused(done)
    assert loopback.files("ada/kept") == before
    assert kept.exists()


def behind(folder: Path, updates: int) -> None:
    """In the client's process: a machine that has made fewer updates of the run comes to its next push."""
    from types import SimpleNamespace

    from msgrpo_hub.hub.checkpoints import HubCheckpoints

    checkpoints = HubCheckpoints("ada/kept", 0, fetch=True)
    checkpoints.folder = folder
    checkpoints.on_update(SimpleNamespace(index=updates + 1))  # type: ignore[arg-type]


def test_of_two_machines_with_one_run_the_slower_does_not_replace_the_faster(
    loopback: Loopback, kept: Path, tmp_path: Path
) -> None:
    before = loopback.files("ada/kept")
    shutil.copytree(kept, slow := tmp_path / "slow")
    (slow / "metrics.jsonl").write_text((kept / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    done = loopback.owner.attempt(behind, slow, 1)
    assert done.code == 0, done.err
    assert "update 1 is not on the Hub yet: 'ada/kept' holds 3 updates of this run" in done.err
    assert loopback.files("ada/kept") == before


def test_a_folder_whose_run_is_behind_that_of_the_repository_is_refused_before_training(
    loopback: Loopback, kept: Path, tmp_path: Path
) -> None:
    before, slow = loopback.files("ada/kept"), tmp_path / "slow"
    slow.mkdir()
    shutil.copyfile(kept / "config.toml", slow / "config.toml")
    assert "'ada/kept' holds 3 updates of this run, and" in refused(train(loopback, slow, "--resume"))
    assert loopback.files("ada/kept") == before


def test_a_file_with_a_token_does_not_leave_with_the_state(loopback: Loopback, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# hf_" + "a1B2" * 8)
    done = loopback.owner.attempt(push_state, tmp_path, "ada/other", ("config.toml",), "0 updates")
    assert "'config.toml' is not pushed because it contains a token" in done.err + done.message
    assert not loopback.hub.repositories


def test_a_large_file_that_does_not_arrive_is_logged_and_sent_with_the_next(loopback: Loopback, tmp_path: Path) -> None:
    loopback.fail("unavailable", where="PUT /_lfs/", status=403)
    done = train(loopback, tmp_path / "run", *RUN, "--checkpoint-every", 0)
    assert done.code == 0, done.err
    assert "update 1 is not on the Hub yet: a transfer with 'ada/kept' failed" in done.err
    assert loopback.files("ada/kept")["summary.json"] == (tmp_path / "run" / "summary.json").read_bytes()


def test_results_that_lack_episodes_are_kept_but_do_not_replace_finished_ones(loopback: Loopback, tmp_path: Path) -> None:
    def evaluate(folder: Path, suite: str) -> Finished:
        kept = ["--checkpoint-repo", "ada/kept", "--output-dir", folder]
        return loopback.owner.attempt(msgrpo, "eval", "random", "--suite", suite, *kept)

    assert evaluate(tmp_path / "a", "quick").code == 0
    before = loopback.files("ada/kept")
    [first, *_] = sorted((tmp_path / "a").rglob("results.json"))
    lacking = tmp_path / "b" / first.relative_to(tmp_path / "a")
    shutil.copytree(first.parent, lacking.parent)
    lacking.write_text(json.dumps(json.loads(first.read_text()) | {"complete": False, "failed": 2}))
    log = lacking.with_name("episodes.jsonl")
    log.write_text("what has been played so far")
    for repo in ("ada/kept", "ada/other"):
        done = loopback.owner.attempt(push_evaluation, tmp_path / "b", repo)
        assert done.code == 0, done.err
    assert loopback.files("ada/kept") == before
    kept = [content for name, content in loopback.files("ada/other").items() if name.endswith("/episodes.jsonl")]
    assert kept == [log.read_bytes()]  # without a complete one there, another machine goes on from here
    assert loopback.owner.attempt(fetch_evaluation, "ada/other", tmp_path / "c").code == 0
    assert [path.read_bytes() for path in (tmp_path / "c").rglob("episodes.jsonl")] == kept
    log.write_text("what has been played since")
    assert loopback.owner.attempt(fetch_evaluation, "ada/other", tmp_path / "b").code == 0
    assert log.read_text() == "what has been played since"
    assert evaluate(tmp_path / "b", "quick").code == 0
    assert json.loads(lacking.read_text())["complete"] is True
    assert loopback.files("ada/kept") == before


def test_several_seeds_cannot_share_a_repository(loopback: Loopback, tmp_path: Path) -> None:
    assert "--checkpoint-repo is for one seed" in refused(train(loopback, tmp_path / "set", *RUN, "--seeds", "0-1"))
