"""The leaderboard of a results dataset: computed from runs that replay, pinned to a commit, shown in three forms."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.evaluation.verify import FILES, NOT_CHECKED, checked_run
from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard
from msgrpo_hub.players.registry import SCRIPTED, Player
from tests.examples import examples
from tests.hub.commands import TASKS, Files, files_of, head, msgrpo, push_results, read_board, refused, write_files
from tests.hub_server.client import Client, put
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import Blob
from tests.identities import served

TASK = TASKS[0]


def one_run(folder: Path) -> Files:
    return {name: content for name, content in files_of(folder / "greedy").items() if f"/{TASK}/" in name}


def test_it_is_pinned_to_its_commit_and_a_pull_request_can_be_read_before_merging(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    first = loopback.owner.call(push_results, played / "random", repo, private=False)
    loopback.stranger.call(push_results, played / "greedy", repo, create_pr=True)
    boards = [loopback.owner.call(read_board, repo, revision) for revision in (None, "refs/pr/1")]
    second = loopback.owner.call(push_results, played / "greedy", repo)
    boards += [loopback.owner.call(read_board, repo, revision) for revision in (None, first.commit)]
    players = [{run["player"] for run in board["results"]} for board in boards]
    assert players == [{"random"}, {"random", "greedy"}, {"random", "greedy"}, {"random"}]
    assert [boards[index]["commit"] for index in (0, 2, 3)] == [first.commit, second.commit, first.commit]


def test_a_folder_and_its_dataset_show_one_table(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push_results, played / player, repo, private=False)

    def told(found: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [{key: value for key, value in row.items() if key != "folder"} for row in found["results"]]
        return sorted(rows, key=lambda row: str(row["run"]))

    board, commit = read_leaderboard(played), head(loopback, repo, "dataset")
    here, there = as_json(board), loopback.owner.call(read_board, repo)
    assert told(here) == told(there)
    assert (here["commit"], here["refused"], there["refused"]) == ("", {}, {})
    terminal, plain = (loopback.nobody.attempt(msgrpo, "leaderboard", repo, *flags) for flags in ([], ["--json"]))
    assert [done.code for done in (terminal, plain)] == [0, 0], terminal.err
    said = f"Replayed: actions, rewards and scores follow from the replies. Not checked: {NOT_CHECKED}."
    assert terminal.out == f"{results_table(board.results)}\n\n{said}\n"
    assert as_markdown(board).endswith(f"\n\n*{said}*")
    assert as_markdown(board, at="main").count(f"](https://huggingface.co/datasets/{board.source}/tree/main/results/") == 4
    shown = [(row["player"], row["task"]) for row in json.loads(plain.out)["results"]]
    assert shown == [(player, task) for task in sorted(TASKS) for player in ("greedy", "random")]
    assert f"{repo} at {commit}: 4 runs, each replayed" in terminal.err


def test_each_refusal_is_one_line_that_says_what_to_do(loopback: Loopback, tmp_path: Path, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_results, played / "random", repo, private=True)
    cases: list[tuple[Client, list[object], str]] = [
        (loopback.owner, ["ada/none"], "'ada/none', HTTP 404"),
        (loopback.nobody, [repo], "is missing or private, and no token was found"),
        (loopback.owner, [repo, "--revision", "none"], "has no such branch or commit"),
        (loopback.owner, ["../x"], "expected USER/NAME"),
        (loopback.owner, [tmp_path], "no runs under"),
    ]
    for client, arguments, words in cases:
        assert words in refused(client.attempt(msgrpo, "leaderboard", *arguments))


def with_json(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | changes).encode()


def with_column(column: str, values: Callable[[int], pa.Array]) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        table, sink = pq.read_table(pa.BufferReader(content)), pa.BufferOutputStream()
        pq.write_table(table.set_column(table.column_names.index(column), column, values(len(table))), sink)
        return bytes(sink.getvalue())

    return change


SPOILED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a better summary": ("results.json", with_json(reward={"mean": 9.0, "low": 8.0, "high": 9.9}), "the summary does not"),
    "a higher reward": ("episodes.parquet", with_column("reward", lambda n: pa.array([2.0] * n)), "its scores do not follow"),
    "no identity": ("config.lock.json", with_json(identity={}), "what kind of player"),
    "another name": ("config.lock.json", with_json(player="me"), "its identity is that of another player"),
    "other seeds": ("episodes.parquet", with_column("seed", lambda n: pa.array(range(n))), "not where they should be"),
    "other replies": ("steps.parquet", with_column("reply", lambda n: pa.array(["no"] * n)), "its reply does not parse to"),
    "a billion episodes": ("config.lock.json", with_json(episodes=10**9), "episodes is 1000000000, expected at most"),
    "control characters": ("config.lock.json", with_json(player="\x1b]0;owned\x07"), "a name that is not plain"),
    "markup": ("config.lock.json", with_json(player="a|[b](javascript:x)<script>"), "a name that is not plain"),
    "a pickle": ("episodes.parquet", lambda _: b"\x80\x04\x95", "episodes.parquet' cannot be read"),
    "other columns": ("episodes.parquet", with_column("seed", lambda n: pa.array(["1"] * n)), "has other columns"),
    "a giant": ("results.json", lambda content: content + b" " * 200_000, "bytes: expected at most 100,000"),
}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [*SPOILED.values(), *((name, None, f"it has no {name}") for name in FILES)],
    ids=[*SPOILED, *(f"no {name}" for name in FILES)],
)
def test_a_run_that_does_not_replay_or_lacks_a_file_is_not_listed_and_the_reason_is_told(
    played: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None, words: str
) -> None:
    files = one_run(played)
    [path] = [path for path in files if path.endswith(name)]
    content = files.pop(path)
    write_files(tmp_path, files | ({path: change(content)} if change else {}))
    board = read_leaderboard(tmp_path)
    assert board.results == ()
    [why] = board.refused.values()
    assert words in why
    assert re.fullmatch(r"[\w .,:;()+=/'-]{1,320}", why.replace("?", ""), re.ASCII)


def test_refused_runs_of_a_dataset_are_reported_and_the_others_listed(loopback: Loopback, played: Path) -> None:
    """Too large runs are not downloaded, and other files are not opened."""
    good, spoiled, places = files_of(played / "random"), {}, []
    for number, (name, change, _) in enumerate(SPOILED.values()):
        for path, content in one_run(played).items():
            folder, _, file = path.rpartition("/")
            moved = f"evil/{number}/{folder.split('/', 2)[2]}"
            spoiled[f"{moved}/{file}"] = change(content) if path.endswith(name) else content
        places.append(moved)
    strange = {"evil.pkl": b"\x80", "a/b/weights.pt": b"\x80", "greedy/v1/x/0123456789abcdef/run.py": b"raise SystemExit"}
    repo = loopback.repository("dataset")
    files = {f"results/{name}": content for name, content in (good | spoiled | strange).items()}
    loopback.owner.call(put, repo, files, "dataset")
    odd = ["../../x", "../v1/x/0123456789abcdef/results.json", "a/b/c/\x1b]0;owned\x07", "a/b/**/0123456789abcdef/results.json"]
    blobs = {f"results/{name}": Blob(content=b"{}") for name in odd}  # the client would not push them
    loopback.stored(repo, "dataset").put("refs/heads/main", blobs, "Tricks", "bob")
    loopback.world.requests.clear()
    board = loopback.owner.call(read_board, repo)
    assert {run["player"] for run in board["results"]} == {"random"}
    shown = {re.sub("[^\\w./;]", "?", name, flags=re.ASCII) for name in odd}
    assert set(board["refused"]) == {*places, *strange, *shown}
    assert {board["refused"][name] for name in {*strange, *shown}} == {"it is not a file of a run and was not opened"}
    fetched = {line.partition("/results/")[2].rpartition("/")[0] for line in loopback.requests("/resolve/")}
    downloaded = {"/".join(path.split("/")[:4]) for path in good} | {*places} - {places[list(SPOILED).index("a giant")]}
    assert fetched == downloaded

    done = loopback.owner.attempt(msgrpo, "leaderboard", repo)
    assert done.code == 0
    assert done.err.count("\nnot listed: ") == len(board["refused"])
    assert "\x1b" not in done.err


def test_two_different_runs_with_the_same_hash_are_both_refused(tmp_path: Path) -> None:
    """Otherwise the alphabetically first run could impersonate another player."""
    suite, name = Suite(name="tiny", tasks=(TASK,), episodes=30), "endpoint:http://127.0.0.1:9/v1#m"
    for folder, choose in {"a/s": "greedy", "b/s": "greedy", "c/s": "random"}.items():
        player = Player(name=name, policy=ScriptedPolicy(SCRIPTED[choose]), identity=served(name), folder=folder)
        run_task(player, suite, TASK, tmp_path)
    board = read_leaderboard(tmp_path)
    assert (sorted(board.refused.values()), board.results) == (["two runs with the same hash differ"] * 2, ())
    shutil.rmtree(tmp_path / "c")
    assert len(read_leaderboard(tmp_path).results) == 1


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_with_changed_bytes_is_the_same_run_or_refused(
    played: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    files = {Path(path).name: content for path, content in one_run(played).items()}
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    [run] = {path.parent for path in (played / "greedy").rglob("config.lock.json") if TASK in path.parts}
    folder = write_files(tmp_path_factory.mktemp("fuzz") / run.name, files | {name: bytes(content)})
    try:
        changed = checked_run(folder)
    except UserError:
        return
    honest = checked_run(run)
    assert (changed.config, changed.episodes, changed.scores) == (honest.config, honest.episodes, honest.scores)
