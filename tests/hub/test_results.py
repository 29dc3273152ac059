"""Evaluation results in a dataset: a push adds runs, keeps the others, and makes the table from all of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite, hash_of
from tests.hub.conftest import msgrpo
from tests.hub.leaderboards import as_somebody
from tests.hub.pushed_results import FILES, TASKS, folder_as_files, load, push
from tests.hub_server import app
from tests.hub_server.lanes import Lane, Loopback
from tests.hub_server.store import Blob, Hub

MADE = {"README.md", "leaderboard.parquet"}
"""What a push makes of all runs."""


def merge(repo: str, number: int) -> None:
    """In the client's process: merges a pull request."""
    from huggingface_hub import HfApi

    HfApi().merge_pull_request(repo, number, repo_type="dataset")


def runs_in(files: dict[str, bytes]) -> set[str]:
    """Players and tasks of the runs among some files."""
    return {"/".join(path.split("/")[1:4:2]) for path in files if path.startswith("results/")}


def test_runs_become_one_commit_in_the_layout_of_eval(hub: Lane, played: Path) -> None:
    repo = hub.repository("dataset")
    pushed = hub.owner.call(push, played / "random", repo, private=True)
    files = hub.files(repo, "dataset")
    local = {f"results/{path.relative_to(played / 'random')}": path for path in (played / "random").rglob("*") if path.is_file()}
    kept = {name: path.read_bytes() for name, path in local.items() if path.name != "timing.json"}
    assert {Path(name).name for name in kept} == FILES
    assert set(files) == set(pushed.changed) == {*kept, *MADE}
    assert kept.items() <= files.items()
    assert hub.commits(repo, "dataset") == ["Results of random", "initial commit"]
    assert pushed.private


def test_eval_pushes_what_it_has_played_and_nothing_else_of_its_folder(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    """The folder also holds another player's runs, and a run that was interrupted."""
    repo, folder = loopback.repository("dataset"), tmp_path / "runs"
    shutil.copytree(played / "random", folder)
    run = next(folder.rglob("results.json"))
    run.write_text(json.dumps(json.loads(run.read_text()) | {"complete": False, "failed": 1}))
    (tmp_path / "one.toml").write_text(f'episodes = 3\n[tasks]\n"{TASKS[0]}" = "{hash_of(TASKS[0])}"')
    flags = ("--suite", tmp_path / "one.toml", "--output-dir", folder, "--push-to-hub", repo)
    done = loopback.owner.attempt(msgrpo, "eval", "greedy", *flags)
    assert done.code == 0, done.err
    assert runs_in(loopback.files(repo, "dataset")) == {f"greedy/{TASKS[0]}"}


def test_a_second_player_is_added_and_the_first_stays_untouched(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo)
    before = loopback.files(repo, "dataset")
    pushed = loopback.owner.call(push, played / "greedy", repo)
    after = loopback.files(repo, "dataset")
    assert {path for path in pushed.changed if not path.startswith("results/greedy/")} == {
        "README.md",
        "leaderboard.parquet",
    }
    assert {path for path in before if after[path] != before[path]} == MADE
    assert runs_in(after) == {f"{player}/{task}" for player in ("random", "greedy") for task in TASKS}
    assert [(run["task"], run["player"]) for run in loopback.owner.call(load, repo)] == [
        (task, player) for task in TASKS for player in ("greedy", "random")
    ]


def test_datasets_loads_one_row_per_run_without_a_login(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo, private=False)
    rows = loopback.nobody.call(load, repo)
    files = loopback.files(repo, "dataset")
    assert [run["task"] for run in rows] == list(TASKS)
    for run in rows:
        config, summary = (json.loads(files[f"{run['folder']}/{name}"]) for name in ("config.lock.json", "results.json"))
        assert {key: run[key] for key in ("player", "suite", "episodes", "split", "task_hash")}.items() <= config.items()
        assert json.loads(run["identity"]) == config["identity"]
        for name in ("reward", "success", "luck_adjusted"):
            assert [run[name], run[f"{name}_low"], run[f"{name}_high"]] == [summary[name][end] for end in ("mean", "low", "high")]
        assert (run["random"], run["reference_reward"]) == (summary["references"]["random"], summary["references"]["optimal"])
        assert run["reference"] == "optimal"
        assert (run["silent"], run["plays"]) == (0, True)
        for name in ("normalised", "illegal_rate", "steps", "above_optimum", "run", "decisions", "optimal_decisions"):
            assert run[name] == summary[name]


def test_after_a_race_the_table_is_made_again_from_all_runs(
    loopback: Loopback, played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's whole push lands between the look at the dataset and the commit."""
    repo, theirs = loopback.repository("dataset"), tmp_path / "theirs"
    loopback.owner.call(push, played / "random", repo)
    assert loopback.owner.attempt(msgrpo, "push", "results", played / "greedy", repo, "--dry-run", theirs).code == 0

    def somebody_pushes(hub: Hub, _: str) -> None:
        blobs = {name: Blob(content=content) for name, content in folder_as_files(theirs).items()}
        hub.repositories["dataset", repo].put("refs/heads/main", blobs, "Results of greedy", "bob")

    monkeypatch.setattr(app, "someone_commits", somebody_pushes)
    mine = tmp_path / "mine"
    evaluate("random-safe", Suite(name="tiny", tasks=TASKS[:1], episodes=30), mine)
    loopback.fail("race")
    loopback.owner.call(push, mine, repo)
    assert loopback.commits(repo, "dataset")[:2] == ["Results of random-safe", "Results of greedy"]
    runs = [run["player"] for run in loopback.owner.call(load, repo) if run["task"] == TASKS[0]]
    assert sorted(runs) == ["greedy", "random", "random-safe"]


def test_a_pull_request_holds_runs_only_and_two_of_them_merge(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    """By somebody who may not write to the dataset; the owner's next push makes table and card anew."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo, private=False)
    evaluate("random-safe", Suite(name="tiny", tasks=TASKS, episodes=30), tmp_path / "safe")
    asked = [loopback.stranger.call(push, folder, repo, create_pr=True) for folder in (played / "greedy", tmp_path / "safe")]
    assert [one.pull_request[-2:] for one in asked] == ["/1", "/2"]
    assert all(path.startswith("results/") for one in asked for path in one.changed)
    again = loopback.stranger.call(push, played / "greedy", repo, create_pr=True)
    assert (again.pull_request, again.changed) == (asked[0].pull_request, ())
    assert runs_in(loopback.files(repo, "dataset")) == {f"random/{task}" for task in TASKS}

    for number in (1, 2):
        loopback.owner.call(merge, repo, number)
    assert {run["player"] for run in loopback.owner.call(load, repo)} == {"random"}
    loopback.owner.call(push, played / "random", repo)
    assert {run["player"] for run in loopback.owner.call(load, repo)} == {"random", "greedy", "random-safe"}
    assert "| [greedy](" in loopback.files(repo, "dataset")["README.md"].decode()


def test_values_of_other_types_in_a_foreign_identity_do_not_hinder_the_next_push(
    loopback: Loopback, played: Path, own: Path
) -> None:
    """Such a run replays, so that it is merged."""
    odd = {"engine": 5, "mode": True, "temperature": True, "max_new_tokens": 0.5}
    for run in [path.parent for path in own.rglob("config.lock.json")]:
        identity = json.loads((run / "config.lock.json").read_text())["identity"]
        as_somebody(run, identity=identity | odd)
        shutil.rmtree(run)
    repo = loopback.repository("dataset")
    loopback.owner.call(push, own, repo)
    loopback.owner.call(push, played / "greedy", repo)
    rows = loopback.owner.call(load, repo)
    assert {run["player"] for run in rows} == {"random", "greedy"}
    assert {run[name] for run in rows if run["player"] == "random" for name in odd} == {None}
    shown = loopback.owner.attempt(msgrpo, "leaderboard", repo)
    assert shown.code == 0, shown.err


def test_a_download_of_the_dataset_pushes_as_it_is(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo, copy = loopback.repository("dataset"), tmp_path / "all"
    loopback.owner.call(push, played / "random", repo)
    for name, content in loopback.files(repo, "dataset").items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    assert loopback.owner.call(push, copy / "results", repo).changed == ()


def test_equal_runs_in_other_bytes_are_the_same_run(loopback: Loopback, own: Path) -> None:
    """Another version of the Parquet library writes other bytes."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push, own, repo)
    for path in own.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="gzip")
    assert loopback.owner.call(push, own, repo).changed == ()
