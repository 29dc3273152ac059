"""Runs that do not replay are not listed."""

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

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.untrusted import checked_run
from msgrpo_hub.hub.leaderboard import read_leaderboard
from tests.examples import examples
from tests.hub.conftest import msgrpo
from tests.hub.leaderboards import TASK, as_claimed, one_run, read
from tests.hub.pushed_results import kept, push
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put
from tests.hub_server.store import Blob


def publish(loopback: Loopback, files: dict[str, bytes]) -> str:
    """A dataset with these files under `results/`, as somebody may have put them there by hand."""
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {f"results/{name}": content for name, content in files.items()}, "dataset")
    return repo


# ---- what it does not show


def with_json(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | changes).encode()


def with_column(column: str, values: Callable[[int], pa.Array]) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(content))
        changed = table.set_column(table.column_names.index(column), column, values(len(table)))
        sink = pa.BufferOutputStream()
        pq.write_table(changed, sink)
        return bytes(sink.getvalue())

    return change


SPOILED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a better summary": ("results.json", with_json(reward={"mean": 9.0, "low": 8.0, "high": 9.9}), "the summary does not"),
    "a higher reward": ("episodes.parquet", with_column("reward", lambda n: pa.array([2.0] * n)), "its scores do not follow"),
    "no identity": ("config.lock.json", with_json(identity={}), "what kind of player"),
    "another name": ("config.lock.json", with_json(player="me"), "the run hash of its configuration"),
    "other seeds": ("episodes.parquet", with_column("seed", lambda n: pa.array(range(n))), "are not those of the suite"),
    "other replies": ("steps.parquet", with_column("reply", lambda n: pa.array(["no"] * n)), "its reply does not parse to"),
    "an open run": ("results.json", with_json(complete=False), "it is not complete"),
    "a billion episodes": ("config.lock.json", with_json(episodes=10**9), "number of episodes is not between"),
    "another harness": ("config.lock.json", with_json(harness="x" * 9999), "version 'xxxxxxxxxxxxxxxxxxxx' of the harness"),
    "control characters": ("config.lock.json", with_json(player="\x1b]0;owned\x07"), "a name that is not plain"),
    "markup": ("config.lock.json", with_json(player="a|[b](javascript:x)<script>"), "a name that is not plain"),
    "identity within": ("config.lock.json", with_json(identity={"kind": {"a": 1}}), "neither plain names nor numbers"),
    "brackets": ("results.json", lambda _: b"[" * 99_000, "cannot be read (RecursionError)"),
    "a pickle": ("episodes.parquet", lambda _: b"\x80\x04\x95", "episodes.parquet cannot be read"),
    "other columns": ("episodes.parquet", with_column("seed", lambda n: pa.array(["1"] * n)), "has other columns"),
    "holes": ("steps.parquet", with_column("reply", lambda n: pa.array([None] * n, pa.string())), "rows without reply"),
    "a long reply": ("steps.parquet", with_column("reply", lambda n: pa.array(["x" * 200_001] * n)), "a reply of more than"),
    "a giant": ("results.json", lambda content: content + b" " * 200_000, "bytes: expected at most 100,000"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_run_that_does_not_replay_is_not_listed(played: Path, tmp_path: Path, what: str) -> None:
    name, change, words = SPOILED[what]
    files = one_run(played)
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(change(content) if path.endswith(name) else content)
    board = read_leaderboard(tmp_path)
    assert board.results == ()
    [why] = board.refused.values()
    assert words in why
    assert re.fullmatch(r"[\w .,:;()+=/'-]{1,320}", why.replace("?", ""), re.ASCII)


def test_refused_runs_of_a_dataset_are_reported_and_the_others_listed(loopback: Loopback, played: Path) -> None:
    """Also what is too large, which is not even downloaded, and what is no run, which is not opened."""
    good, spoiled = kept(played / "random"), {}
    places = []
    for number, (name, change, _) in enumerate(SPOILED.values()):
        for path, content in one_run(played).items():
            folder, _, file = path.rpartition("/")
            moved = f"evil/{number}/{folder.split('/', 2)[2]}"
            spoiled[f"{moved}/{file}"] = change(content) if path.endswith(name) else content
        places.append(moved)
    strange = {"evil.pkl": b"\x80", "a/b/weights.pt": b"\x80", "greedy/v1/x/0123456789abcdef/run.py": b"raise SystemExit"}
    repo = publish(loopback, good | spoiled | strange)
    odd = ["../../x", "../v1/x/0123456789abcdef/results.json", "a/b/c/\x1b]0;owned\x07", "a/b/**/0123456789abcdef/results.json"]
    blobs = {f"results/{name}": Blob(content=b"{}") for name in odd}  # as no honest client would push them
    loopback.stored(repo, "dataset").put("refs/heads/main", blobs, "Tricks", "bob")
    loopback.forget_requests()
    board = loopback.owner.call(read, repo)
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


def test_a_stored_table_is_never_trusted(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push, played / "random", repo)
    table = with_column("reward", lambda n: pa.array([1.0] * n))(loopback.files(repo, "dataset")["leaderboard.parquet"])
    loopback.owner.call(put, repo, {"leaderboard.parquet": table}, "dataset")
    before, after = (loopback.owner.call(read, repo, revision) for revision in (pushed.commit, "main"))
    assert [run["reward"] for run in before["results"]] == [run["reward"] for run in after["results"]]


def test_two_different_runs_with_the_same_hash_are_both_refused(own: Path) -> None:
    """Otherwise the alphabetically first run could impersonate another player."""
    [run] = [path.parent for path in own.rglob("config.lock.json") if TASK in path.parts]
    twin = own / "aaa" / "v1" / TASK / run.name
    shutil.copytree(run, twin)
    assert len(read_leaderboard(own).results) == 2
    evaluate("greedy", Suite(name="tiny", tasks=(TASK,), episodes=30), own / "other")
    shutil.copytree(next((own / "other").rglob("steps.parquet")).parent, twin, dirs_exist_ok=True)
    config = (run / "config.lock.json").read_bytes()
    (twin / "config.lock.json").write_bytes(config)
    summary = json.loads((twin / "results.json").read_text())
    assert summary["run"] != run.name
    rescored = as_claimed(twin)
    assert checked_run(rescored).summary["reward"]["mean"] == 1.0  # replays: only who played it is a lie
    board = read_leaderboard(own)
    assert sorted(board.refused.values()) == ["two runs with the same hash differ"] * 2
    assert {result.player for result in board.results if result.task == TASK} == {"greedy"}


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_of_a_run_crashes_the_leaderboard(
    played: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is in the files: the run is the same run, or it is refused in words."""
    files = one_run(played)
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz") / Path(name).parent.name
    folder.mkdir()
    for path, original in files.items():
        (folder / Path(path).name).write_bytes(content if path == name else original)
    [run] = {path.parent for path in (played / "greedy").rglob("config.lock.json") if TASK in path.parts}
    try:
        changed = checked_run(folder)
    except UserError:
        return
    honest = checked_run(run)
    assert (changed.config, changed.episodes, changed.scores) == (honest.config, honest.episodes, honest.scores)
