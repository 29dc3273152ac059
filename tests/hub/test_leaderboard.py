"""The leaderboard of a results dataset: computed from the runs, pinned to a commit, shown in three forms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.evaluation.verify import NOT_CHECKED
from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard, read_published
from msgrpo_hub.hub.uploading import Target
from tests.hub.conftest import msgrpo, refused
from tests.hub.leaderboards import TASK, read
from tests.hub.pushed_results import TASKS, push
from tests.hub_server.client import Client
from tests.hub_server.lanes import Lane, Loopback

# ---- what it shows


def test_the_leaderboard_is_pinned_to_the_commit_that_it_names(hub: Lane, played: Path) -> None:
    repo = hub.repository("dataset")
    first = hub.owner.call(push, played / "random", repo, private=True)
    second = hub.owner.call(push, played / "greedy", repo, private=True)
    now, before = hub.owner.call(read, repo), hub.owner.call(read, repo, first.commit)
    assert (now["commit"], before["commit"]) == (second.commit, first.commit)
    assert {run["player"] for run in now["results"]} == {"random", "greedy"}
    assert {run["player"] for run in before["results"]} == {"random"}


def test_the_leaderboard_of_a_pull_request_can_be_read_before_merging(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo, private=False)
    loopback.stranger.call(push, played / "greedy", repo, create_pr=True)
    assert {run["player"] for run in loopback.owner.call(read, repo, "refs/pr/1")["results"]} == {"random", "greedy"}


def test_a_folder_and_the_dataset_made_from_it_show_the_same(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push, played / player, repo)

    def told(board: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [{key: value for key, value in row.items() if key != "folder"} for row in board["results"]]
        return sorted(rows, key=lambda row: str(row["run"]))

    here, there = as_json(read_leaderboard(played)), loopback.owner.call(read, repo)
    assert told(here) == told(there)
    assert (here["commit"], here["refused"], there["refused"]) == ("", {}, {})


def test_the_command_shows_one_table_in_three_forms(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push, played / player, repo, private=False)
    commit = loopback.refs(repo, "dataset")["refs/heads/main"]
    terminal, markdown, plain = (
        loopback.nobody.attempt(msgrpo, "leaderboard", repo, *flags) for flags in ([], ["--markdown"], ["--json"])
    )
    assert [done.code for done in (terminal, markdown, plain)] == [0, 0, 0], terminal.err
    board = read_leaderboard(played)
    said = f"Replayed: actions, rewards and scores follow from the replies. Not checked: {NOT_CHECKED}."
    assert terminal.out == f"{results_table(board.results)}\n\n{said}\n"
    assert as_markdown(board).endswith(f"\n\n*{said}*")
    assert markdown.out.count(f"](https://huggingface.co/datasets/{repo}/tree/{commit}/results/") == 4
    assert re.sub(r"\[(\w+)\]\([^)]*\)", r"\1", markdown.out) == as_markdown(board) + "\n"
    rows = json.loads(plain.out)["results"]
    assert [(row["player"], row["task"]) for row in rows] == [
        (player, task) for task in sorted(TASKS) for player in ("greedy", "random")
    ]
    assert f"{repo} at {commit}: 4 runs, each replayed" in terminal.err


def test_the_table_has_intervals_references_rates_and_the_best_first(played: Path) -> None:
    lines = results_table(read_leaderboard(played).of_task(TASK).results).splitlines()
    assert re.fullmatch(rf"{TASK}   30 test episodes on \d+ boards   exact: silent 0.00, random 0.0\d, optimal 1.00", lines[0])
    assert [line.split()[:2] for line in lines[3:5]] == [["greedy", "1"], ["random", "2"]]
    assert re.search(r"greedy +1 +1\.000 \[0\.886, 1\.000\] +1\.000 \[0\.886, 1\.000\] .* 0\.0% / 0\.0% / 0\.0%", lines[3])


def test_one_task_can_be_asked_for_and_an_unknown_one_is_named(played: Path) -> None:
    board = read_leaderboard(played)
    assert {result.task for result in board.of_task(TASKS[1]).results} == {TASKS[1]}
    with pytest.raises(UserError, match=f"unknown task 'FrozenLake-NotSlipery-v1': did you mean '{TASK}'"):
        board.of_task("FrozenLake-NotSlipery-v1")


# ---- what is no leaderboard


def test_each_refusal_is_one_line_that_says_what_to_do(loopback: Loopback, tmp_path: Path, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo, private=True)
    cases: list[tuple[Client, list[object], str]] = [
        (loopback.owner, ["ada/none"], "'ada/none', HTTP 404"),
        (loopback.nobody, [repo], "is missing or private, and no token was found"),
        (loopback.owner, [repo, "--revision", "none"], "has no such branch or commit"),
        (loopback.owner, [repo, "--task", "Snake-Solo-v1"], "unknown task 'Snake-Solo-v1'"),
        (loopback.owner, ["../x"], "expected USER/NAME"),
        (loopback.owner, [tmp_path], "no runs under"),
        (loopback.client(HF_HUB_OFFLINE="1"), [repo], "HF_HUB_OFFLINE is set"),
    ]
    for client, arguments, words in cases:
        assert words in refused(client.attempt(msgrpo, "leaderboard", *arguments))


def test_a_dataset_with_too_many_runs_is_refused_before_a_download() -> None:
    files = [RepoFile(path=f"results/a/b/c/{number:016x}/results.json", size=1, oid="") for number in range(5_001)]
    with pytest.raises(UserError, match="has 5,001 runs: expected at most 5,000"):
        read_published(Target(repo_id="ada/lake", kind="dataset"), "main", {file.path: file for file in files})
