"""Runs that do not replay are not listed, and scores above the optimum are flagged."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.evaluation.runner import finish, run_config
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.evaluation.untrusted import checked_run
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard
from msgrpo_hub.players.identity import Player
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import write_json
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
    "a lower optimum": ("episodes.parquet", with_column("value_optimal", lambda n: pa.array([0.5] * n)), "its scores do not"),
    "no identity": ("config.lock.json", with_json(identity={}), "what kind of player"),
    "another name": ("config.lock.json", with_json(player="me"), "the run hash of its configuration"),
    "other seeds": ("episodes.parquet", with_column("seed", lambda n: pa.array(range(n))), "are not those of the suite"),
    "other replies": ("steps.parquet", with_column("reply", lambda n: pa.array(["no"] * n)), "its reply does not parse to"),
    "an open run": ("results.json", with_json(complete=False), "it is not complete"),
    "an unknown game": ("config.lock.json", with_json(task="Chess-v1"), "unknown game"),
    "a billion episodes": ("config.lock.json", with_json(episodes=10**9), "number of episodes is not between"),
    "true episodes": ("config.lock.json", with_json(episodes=True), "number of episodes is not between"),
    "another harness": ("config.lock.json", with_json(harness="x" * 9999), "version 'xxxxxxxxxxxxxxxxxxxx' of the harness"),
    "another key": ("config.lock.json", with_json(more=1), "has other keys"),
    "control characters": ("config.lock.json", with_json(player="\x1b]0;owned\x07"), "a name that is not plain"),
    "markup": ("config.lock.json", with_json(player="a|[b](javascript:x)<script>"), "a name that is not plain"),
    "a long name": ("config.lock.json", with_json(player="x" * 300), "a name that is not plain"),
    "identity, a list": ("config.lock.json", with_json(identity=["kind"]), "what kind of player"),
    "identity within": ("config.lock.json", with_json(identity={"kind": {"a": 1}}), "neither plain names nor numbers"),
    "identity, large": ("config.lock.json", with_json(identity={"kind": "x", "n": 10**400}), "neither plain names"),
    "a list": ("results.json", lambda _: b"[]", "is not a JSON object"),
    "brackets": ("results.json", lambda _: b"[" * 99_000, "cannot be read (RecursionError)"),
    "not a number": ("results.json", lambda _: b'{"complete": true, "reward": NaN}', "cannot be read (ValueError)"),
    "a long number": ("config.lock.json", lambda _: b'{"a": ' + b"9" * 9999 + b"}", "cannot be read (ValueError)"),
    "no text": ("config.lock.json", lambda _: b"\xff\xfe", "cannot be read (UnicodeDecodeError)"),
    "a pickle": ("episodes.parquet", lambda _: b"\x80\x04\x95", "episodes.parquet cannot be read"),
    "half a file": ("steps.parquet", lambda content: content[: len(content) // 2], "steps.parquet cannot be read"),
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


@dataclass(frozen=True)
class Clairvoyant:
    """Knows the ice in advance: where it will slip follows from the seed, which players are never told."""

    path: list[str]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=f"<action>{self.path[prompt.state.turn]}</action>") for prompt in prompts]


def best_path(lake: FrozenLake, seed: int) -> list[str]:
    """Actions that reach the goal with the slips of a seed, if any do."""
    state = lake.initial_state(stream(seed, "initial_state"))
    slips = stream(seed, "dynamics", 0).integers(3, size=lake.horizon)
    paths: dict[Any, tuple[Any, list[str]]] = {state.player: (state, [])}
    for slip in slips:
        ahead: dict[Any, tuple[Any, list[str]]] = {}
        for now, path in paths.values():
            for action in lake.actions:
                after = lake.outcomes(now, action)[slip][1].state
                if after.player == after.goal:
                    return [*path, action, *["Up"] * lake.horizon]
                if not after.terminal:
                    ahead.setdefault(after.player, (after, [*path, action]))
        paths = ahead or {state.player: (state, ["Up"] * lake.horizon)}
    return ["Up"] * lake.horizon


def test_a_player_that_knows_the_ice_in_advance_is_flagged_above_the_optimum(tmp_path: Path) -> None:
    """All its rewards follow from the rules; that nobody can be so lucky is what gives it away."""
    task = "FrozenLake-Slippery-v1"
    lake, suite = make_game(task), Suite(name="tiny", tasks=(task,), episodes=30)
    assert isinstance(lake, FrozenLake)
    identity = {"kind": "entry point", "player": "lucky", "package": "luck", "version": "1", "batch_size": 1}
    player = Player(name="lucky", policy=Clairvoyant([]), identity=identity, folder="lucky/v1")
    config = run_config(player, suite, task)
    run = tmp_path / "lucky" / "v1" / task / run_hash(config)
    run.mkdir(parents=True)
    write_json(run / run_files.CONFIG, config)
    episodes = [play_episodes(lake, Clairvoyant(best_path(lake, seed)), [(seed, 0)])[0] for seed in suite.seeds(task)]
    run_files.append_episodes(run / run_files.LOG, list(enumerate(episodes)), 1.0)
    finish(run, config)

    board = read_leaderboard(tmp_path)
    assert board.refused == {}
    [row] = as_json(board)["results"]
    assert row["above_optimum"]
    assert row["reward"]["mean"] > 0.8 > row["references"]["optimal"]
    assert "ABOVE THE OPTIMUM" in results_table(board.results)
    assert "ABOVE THE OPTIMUM" in as_markdown(board)
