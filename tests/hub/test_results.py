"""Runs go up beside everybody's, in one commit; the table is made from all of them, whoever was faster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.uploading import Pushed
from msgrpo_hub.players.identity import Player
from msgrpo_hub.players.scripted import choose_random, choose_random_safe
from tests.hub.conftest import msgrpo, refused
from tests.hub_server import app
from tests.hub_server.cards import check_card as check_as_the_hub_does
from tests.hub_server.lanes import Lane, Loopback
from tests.hub_server.operations import put
from tests.hub_server.store import Blob, Hub

TASKS = ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery20-v1")
FILES = {"config.lock.json", "episodes.parquet", "results.json", "steps.parquet"}
warm = ("datasets", "msgrpo_hub.hub.results")


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    """Over there."""
    from msgrpo_hub.hub import push_results

    return push_results(folder, repo, **options)


def load(repo: str) -> list[dict[str, Any]]:
    """Over there, what anybody's `datasets` makes of it."""
    from datasets import load_dataset

    splits = load_dataset(repo)
    assert list(splits) == ["runs"]
    return list(splits["runs"])


def merge(repo: str, number: int) -> None:
    """Over there: merges a pull request."""
    from huggingface_hub import HfApi

    HfApi().merge_pull_request(repo, number, repo_type="dataset")


@pytest.fixture(scope="session", name="played")
def played_by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two players on two tasks, each in a folder of its own. Not to be changed: copy it."""
    folder = tmp_path_factory.mktemp("played")
    for player in ("random", "greedy"):
        evaluate(player, Suite(name="tiny", tasks=TASKS, episodes=30), folder / player)
    return folder


@pytest.fixture(name="own")
def copied(played: Path, tmp_path: Path) -> Path:
    """The runs of `random`, to spoil."""
    return Path(shutil.copytree(played / "random", tmp_path / "own"))


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
    assert set(files) == set(pushed.changed) == {*kept, "README.md", "leaderboard.parquet"}
    assert kept.items() <= files.items()
    assert hub.commits(repo, "dataset") == ["Results of random", "initial commit"]
    assert pushed.private


def test_a_second_push_makes_no_commit(hub: Lane, played: Path) -> None:
    repo = hub.repository("dataset")
    first = hub.owner.call(push, played / "random", repo, private=True)
    second = hub.owner.call(push, played / "random", repo, private=True)
    assert (second.changed, second.commit) == ((), first.commit)
    assert len(hub.commits(repo, "dataset")) == 2


def test_a_second_player_is_added_and_the_first_stays_untouched(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo)
    before = loopback.files(repo, "dataset")
    pushed = loopback.owner.call(push, played / "greedy", repo)
    after = loopback.files(repo, "dataset")
    assert {path for path in pushed.changed if not path.startswith("results/greedy/")} == {"README.md", "leaderboard.parquet"}
    assert {path for path in before if after[path] != before[path]} == {"README.md", "leaderboard.parquet"}
    assert runs_in(after) == {f"{player}/{task}" for player in ("random", "greedy") for task in TASKS}
    assert [(run["task"], run["player"]) for run in loopback.owner.call(load, repo)] == [
        (task, player) for task in TASKS for player in ("greedy", "random")
    ]


def test_anybody_loads_one_row_per_run_with_datasets(loopback: Loopback, played: Path) -> None:
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
        for name in ("normalised", "illegal_rate", "steps", "above_optimum", "run", "optimal_rate", "prompt_tokens"):
            assert run[name] == summary[name]


def folder_as_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_who_was_overtaken_makes_the_table_again_from_all_runs(
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


def test_a_download_of_the_dataset_pushes_as_it_is(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo, copy = loopback.repository("dataset"), tmp_path / "all"
    loopback.owner.call(push, played / "random", repo)
    for name, content in loopback.files(repo, "dataset").items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    loopback.forget_requests()
    assert loopback.owner.call(push, copy / "results", repo).changed == ()
    assert loopback.requests("/resolve/") == []  # what is the same is not downloaded to be compared


def test_equal_runs_in_other_bytes_are_the_same_run(loopback: Loopback, own: Path) -> None:
    """Another version of the Parquet library writes other bytes."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push, own, repo)
    for path in own.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="gzip")
    assert loopback.owner.call(push, own, repo).changed == ()


# ---- what is refused


def change_json(own: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    for path in own.rglob(name):
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))


def raise_rewards(own: Path) -> None:
    """As somebody would who wants to be first."""
    for path in own.rglob("*.parquet"):
        table = pq.read_table(path)
        column = table.column_names.index("reward")
        pq.write_table(table.set_column(column, "reward", pa.array([1.0] * len(table))), path)


def leave_open(own: Path) -> None:
    change_json(own, "results.json", lambda summary: summary.update(complete=False))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (raise_rewards, "where the rules give 0"),
        (lambda own: change_json(own, "results.json", lambda s: s["reward"].update(mean=0.9)), "summary does not follow"),
        (lambda own: change_json(own, "config.lock.json", lambda c: c.update(player="me")), "the run hash of its configuration"),
        (leave_open, "it is not complete"),
        (lambda own: [path.unlink() for path in own.rglob("steps.parquet")], "it has no steps.parquet"),
        (lambda own: [path.write_bytes(b"") for path in own.rglob("steps.parquet")], "its steps.parquet cannot be read"),
        (lambda own: (own / "random").rename(own / "ra ndom"), "is not called <player>"),
    ],
)
def test_what_does_not_replay_is_not_pushed(loopback: Loopback, own: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(own)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", own, loopback.repository("dataset")))
    assert words in said
    assert "is not pushed" in said
    assert not loopback.hub.repositories


def test_another_run_of_the_same_hash_does_not_replace_the_first(loopback: Loopback, own: Path) -> None:
    """Who may not choose: of a player who is not pinned, the run that went well could be pushed over the one that did not."""
    repo, mine = loopback.repository("dataset"), own / "mine"
    game = Suite(name="tiny", tasks=TASKS[:1], episodes=30)
    for attempt in (0, 1):
        run_task(unpinned(attempt), game, TASKS[0], mine / str(attempt))
    loopback.owner.call(push, mine / "0", repo)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", mine / "1", repo))
    assert "has another run as 'served/unpinned/FrozenLake-NotSlippery-v1/" in said
    assert len(loopback.commits(repo, "dataset")) == 2


def unpinned(attempt: int) -> Player:
    """A player behind a server: its replies are not decided by its identity."""
    choose = [choose_random, choose_random_safe][attempt]
    identity = {"kind": "endpoint", "server": "endpoint:https://example.org/v1#m", "temperature": 1.0}
    return Player(
        name="endpoint:https://example.org/v1#m", policy=ScriptedPolicy(choose), identity=identity, folder="served/unpinned"
    )


def test_a_dataset_of_another_sort_is_left_alone(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {"data.parquet": b"1"}, "dataset")
    assert "holds something else" in refused(loopback.owner.attempt(msgrpo, "push", "results", played / "random", repo))
    assert loopback.files(repo, "dataset") == {"data.parquet": b"1"}


def test_flags_of_adapters_and_folders_without_runs_are_refused(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    words = refused(loopback.owner.attempt(msgrpo, "push", "results", played / "random", repo, "--base", "a/b"))
    assert "--base is for `msgrpo push adapter`" in words
    assert "no runs under" in refused(loopback.owner.attempt(msgrpo, "push", "results", tmp_path, repo))
    assert "no runs under" in refused(loopback.owner.attempt(msgrpo, "push", "results", tmp_path / "none", repo))


# ---- the command and the card


def test_a_dry_run_writes_exactly_what_a_push_sends(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    for number, player in enumerate(("random", "greedy")):  # into a new dataset, and into one that is there
        dry = tmp_path / str(number)
        done = loopback.owner.attempt(msgrpo, "push", "results", played / player, repo, "--dry-run", dry, "--json")
        assert done.code == 0, done.err
        pushed = loopback.owner.call(push, played / player, repo)
        assert json.loads(done.out)["files"] == sorted(folder_as_files(dry)) == list(pushed.changed)
        assert folder_as_files(dry).items() <= loopback.files(repo, "dataset").items()


def test_the_command_says_who_will_see_it_and_what_comes_next(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    done = loopback.owner.attempt(msgrpo, "push", "results", played / "random", repo, "--private", "--message", "Mine")
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/datasets/{repo}\n"), done.err
    assert done.err.startswith(f"pushing to {repo} (private)\n")
    assert done.err.endswith(f"Next: msgrpo leaderboard {repo}\n")
    assert loopback.commits(repo, "dataset")[0] == "Mine"


def run_code(block: str) -> None:
    """Over there: runs a code block of a card."""
    exec(compile(block, "card", "exec"), {"__name__": "__main__"})


def test_the_card_passes_the_rules_shows_the_table_and_its_code_runs(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push, played / player, repo, private=False)
    card = loopback.files(repo, "dataset")["README.md"].decode()
    assert check_as_the_hub_does("dataset", card) == ([], [])
    metadata, text = split_card(card)
    splits = [{"split": "runs", "path": "leaderboard.parquet"}]
    assert metadata["configs"] == [{"config_name": "default", "data_files": splits, "default": True}]
    assert re.search(r"\*\*FrozenLake-NotSlippery-v1\*\*, 30 test episodes; optimal 1.00, random 0.0\d\n\n\| player \|", text)
    links = re.findall(r"\]\((\S+)\)", text)
    assert len(links) == 4
    files = loopback.files(repo, "dataset")
    for link in links:
        assert f"{link.partition(f'datasets/{repo}/tree/main/')[2]}/results.json" in files
    assert not re.search(r"\bNone\b|\{\{|\}\}|\{%|\n\n\n| $", text, re.MULTILINE)
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ran = loopback.nobody.attempt(run_code, block)
    assert (ran.code, ran.out.split()[0], ran.out.split()[-1]) == (0, "greedy", "30"), ran.err


@pytest.mark.slow
def test_the_commands_of_the_card_add_a_player_and_make_the_page_anew(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo)
    loopback.owner.call(put, repo, {f"results/{name}": content for name, content in kept(played / "greedy").items()}, "dataset")
    card = loopback.files(repo, "dataset")["README.md"].decode()
    commands = re.findall(r"```bash\n(.*?)```", card, re.DOTALL)[-1]
    scripts = Path(sys.executable).parent
    environment = {**os.environ, **loopback.machine.environment, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"HF_TOKEN": loopback.owner.token or ""}
    done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {run["player"] for run in loopback.owner.call(load, repo)} == {"random", "greedy"}


def kept(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in folder_as_files(folder).items() if Path(name).name in FILES}
