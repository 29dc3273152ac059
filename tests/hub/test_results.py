"""Results in a dataset: a push adds runs that replay, keeps the others, and makes the table from all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite, hash_of
from msgrpo_hub.players.registry import Player
from msgrpo_hub.players.scripted import choose_random, choose_random_safe
from tests.hub.commands import SUITE, TASKS, Files, files_of, load_table, msgrpo, push_results, refused, write_files
from tests.hub_server.client import LOADS_DATASETS, put
from tests.hub_server.lanes import Loopback
from tests.identities import served

warm = LOADS_DATASETS

MADE = {"README.md", "leaderboard.parquet"}
"""Made from all runs by a push."""


def merge(repo: str, number: int) -> None:
    from huggingface_hub import HfApi

    HfApi().merge_pull_request(repo, number, repo_type="dataset")


def runs_in(files: Files) -> set[str]:
    return {"/".join(path.split("/")[1:4:2]) for path in files if path.startswith("results/")}


def rows_of(loopback: Loopback, repo: str) -> list[dict[str, Any]]:
    return loopback.owner.call(load_table, repo)[0]


def test_runs_become_one_commit_in_the_layout_of_eval_and_again_none(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push_results, played / "random", repo, private=True)
    files = loopback.files(repo, "dataset")
    kept = {f"results/{name}": content for name, content in files_of(played / "random").items()}
    assert set(files) == set(pushed.changed) == {*kept, *MADE}
    assert kept.items() <= files.items()
    assert loopback.commits(repo, "dataset") == ["Results of random", "initial commit"]
    assert pushed.private
    for path in write_files(tmp_path, files).rglob("*.parquet"):  # a download; another version of the library writes other bytes
        pq.write_table(pq.read_table(path), path, compression="gzip")
    assert loopback.owner.call(push_results, tmp_path / "results", repo).changed == ()


def test_eval_pushes_what_it_has_played_and_nothing_else_of_its_folder(loopback: Loopback, own: Path) -> None:
    """The folder also holds another player's runs, and an interrupted run."""
    repo, suite = loopback.repository("dataset"), own.parent / "one.toml"
    run = next(own.rglob("results.json"))
    run.write_text(json.dumps(json.loads(run.read_text()) | {"complete": False, "failed": 1}))
    suite.write_text(SUITE.format(TASKS[0], 3, hash_of(TASKS[0])))
    flags = ("--suite", suite, "--output-dir", own, "--push-to-hub", repo)
    done = loopback.owner.attempt(msgrpo, "eval", "greedy", *flags)
    assert done.code == 0, done.err
    assert runs_in(loopback.files(repo, "dataset")) == {f"greedy/{TASKS[0]}"}


def test_datasets_loads_one_row_per_run_without_a_login(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_results, played / "random", repo, private=False)
    rows, _ = loopback.nobody.call(load_table, repo)
    files = loopback.files(repo, "dataset")
    assert [run["task"] for run in rows] == list(TASKS)
    for run in rows:
        config, summary = (json.loads(files[f"{run['folder']}/{name}"]) for name in ("config.lock.json", "results.json"))
        assert {key: run[key] for key in ("player", "suite", "episodes", "split", "task_hash")}.items() <= config.items()
        assert json.loads(run["identity"]) == config["identity"]
        for name in ("reward", "success", "luck_adjusted"):
            assert [run[name], run[f"{name}_low"], run[f"{name}_high"]] == [summary[name][end] for end in ("mean", "low", "high")]
        assert (run["random"], run["reference_reward"]) == (summary["references"]["random"], summary["references"]["optimal"])
        assert (run["reference"], run["silent"], run["plays"]) == ("optimal", 0, True)
        for name in ("normalised", "illegal_rate", "steps", "above_optimum", "run", "decisions", "optimal_decisions"):
            assert run[name] == summary[name]


def test_after_a_race_the_table_is_made_again_from_all_runs(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    """Another's whole push arrives between the look at the dataset and the commit."""
    repo, theirs, mine = loopback.repository("dataset"), tmp_path / "theirs", tmp_path / "mine"
    loopback.owner.call(push_results, played / "random", repo)
    assert loopback.owner.attempt(msgrpo, "push", "results", played / "greedy", repo, "--dry-run", theirs).code == 0
    evaluate("random-safe", Suite(name="tiny", tasks=TASKS[:1], episodes=30), mine)
    loopback.overtake(repo, files_of(theirs), "dataset")
    loopback.owner.call(push_results, mine, repo)
    assert loopback.commits(repo, "dataset")[:2] == ["Results of random-safe", "Another's commit"]
    runs = [run["player"] for run in rows_of(loopback, repo) if run["task"] == TASKS[0]]
    assert sorted(runs) == ["greedy", "random", "random-safe"]


def test_a_pull_request_holds_runs_only_and_two_of_them_merge(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    """A stranger opens them; the owner's next push updates table and card."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push_results, played / "random", repo, private=False)
    evaluate("random-safe", Suite(name="tiny", tasks=TASKS, episodes=30), tmp_path / "safe")
    folders = (played / "greedy", tmp_path / "safe")
    asked = [loopback.stranger.call(push_results, folder, repo, create_pr=True) for folder in folders]
    assert [one.pull_request[-2:] for one in asked] == ["/1", "/2"]
    assert all(path.startswith("results/") for one in asked for path in one.changed)
    assert runs_in(loopback.files(repo, "dataset")) == {f"random/{task}" for task in TASKS}

    for number in (1, 2):
        loopback.owner.call(merge, repo, number)
    assert {run["player"] for run in rows_of(loopback, repo)} == {"random"}
    loopback.owner.call(push_results, played / "random", repo)
    assert {run["player"] for run in rows_of(loopback, repo)} == {"random", "greedy", "random-safe"}
    assert "| [greedy](" in loopback.files(repo, "dataset")["README.md"].decode()


def leave_open(own: Path) -> None:
    for path in own.rglob("results.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"complete": False}))


def raise_rewards(own: Path) -> None:
    for path in own.rglob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.set_column(table.column_names.index("reward"), "reward", pa.array([1.0] * len(table))), path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (raise_rewards, "where the rules give 0"),
        (leave_open, "it is not complete"),
        (lambda own: (own / "random").rename(own / "ra ndom"), "is not named <player>"),
    ],
)
def test_a_run_that_does_not_replay_is_not_pushed(
    loopback: Loopback, own: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(own)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", own, loopback.repository("dataset")))
    assert words in said
    assert not loopback.hub.repositories


def test_another_run_of_the_same_hash_does_not_replace_the_first(loopback: Loopback, own: Path) -> None:
    """The identity of a served player does not determine its replies: a better run could replace a worse one."""
    repo, name = loopback.repository("dataset"), "endpoint:https://example.org/v1#m"
    for attempt, choose in enumerate((choose_random, choose_random_safe)):
        player = Player(name=name, policy=ScriptedPolicy(choose), identity=served(name), folder="served/unpinned")
        run_task(player, Suite(name="tiny", tasks=TASKS[:1], episodes=30), TASKS[0], own / "mine" / str(attempt))
    loopback.owner.call(push_results, own / "mine" / "0", repo)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", own / "mine" / "1", repo))
    assert "has a different run at 'served/unpinned/FrozenLake-NotSlippery-v1/" in said
    assert len(loopback.commits(repo, "dataset")) == 2


def test_another_s_dataset_is_left_alone(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {"README.md": b"# Ours\n", "results/2024/scores.csv": b"1"}, "dataset")
    before = loopback.files(repo, "dataset")
    assert "holds something else (2024/scores.csv)" in refused(loopback.owner.attempt(msgrpo, "push", "results", played, repo))
    assert loopback.files(repo, "dataset") == before
