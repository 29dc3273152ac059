"""The leaderboard lists what follows from the rules, says why not where something does not, and opens nothing else."""

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
from huggingface_hub.hf_api import RepoFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import load_result, run_hash
from msgrpo_hub.evaluation.runner import finish, run_config
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.evaluation.untrusted import FILES, checked_run
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard, read_published
from msgrpo_hub.hub.uploading import Target
from msgrpo_hub.players.identity import Player
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import write_json
from tests.hub.conftest import msgrpo, refused
from tests.hub.test_results import FILES as NAMES
from tests.hub.test_results import TASKS, copied, kept, played_by_two, push, warm  # noqa: F401
from tests.hub_server.client import Client
from tests.hub_server.lanes import Lane, Loopback
from tests.hub_server.operations import put
from tests.hub_server.store import Blob

TASK = TASKS[0]


def publish(loopback: Loopback, files: dict[str, bytes]) -> str:
    """A dataset with these files under `results/`, as somebody may have put them there by hand."""
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {f"results/{name}": content for name, content in files.items()}, "dataset")
    return repo


def read(repo: str, revision: str | None = None) -> dict[str, Any]:
    """Over there."""
    return as_json(read_leaderboard(repo, revision=revision))


def one_run(folder: Path) -> dict[str, bytes]:
    """The files of the run of `greedy` on the first task."""
    return {name: content for name, content in kept(folder / "greedy").items() if f"/{TASK}/" in name}


# ---- what it shows


def test_it_is_pinned_to_the_commit_that_it_names(hub: Lane, played: Path) -> None:
    repo = hub.repository("dataset")
    first = hub.owner.call(push, played / "random", repo, private=True)
    second = hub.owner.call(push, played / "greedy", repo, private=True)
    now, before = hub.owner.call(read, repo), hub.owner.call(read, repo, first.commit)
    assert (now["commit"], before["commit"]) == (second.commit, first.commit)
    assert {run["player"] for run in now["results"]} == {"random", "greedy"}
    assert {run["player"] for run in before["results"]} == {"random"}


def test_a_pull_request_can_be_looked_at_before_it_is_merged(loopback: Loopback, played: Path) -> None:
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
    assert terminal.out == results_table(board.results) + "\n"
    assert markdown.out.count(f"](https://huggingface.co/datasets/{repo}/tree/{commit}/results/") == 4
    assert re.sub(r"\[(\w+)\]\([^)]*\)", r"\1", markdown.out) == as_markdown(board) + "\n"
    rows = json.loads(plain.out)["results"]
    assert [(row["player"], row["task"]) for row in rows] == [
        (player, task) for task in sorted(TASKS) for player in ("greedy", "random")
    ]
    assert f"{repo} at {commit}: 4 runs, each played again" in terminal.err


def test_the_table_has_intervals_references_rates_and_the_best_first(played: Path) -> None:
    lines = results_table(read_leaderboard(played).of_task(TASK).results).splitlines()
    assert re.fullmatch(rf"{TASK}   30 test episodes   exact: random 0.0\d, optimal 1.00", lines[0])
    assert [line.split()[0] for line in lines[3:]] == ["greedy", "random"]
    assert re.search(r"greedy +1\.000 \[1\.000, 1\.000\] +1\.000 \[0\.886, 1\.000\] .* 0\.0% / 0\.0% / 0\.0%", lines[3])


def test_one_task_can_be_asked_for_and_an_unknown_one_is_named(played: Path) -> None:
    board = read_leaderboard(played)
    assert {result.task for result in board.of_task(TASKS[1]).results} == {TASKS[1]}
    with pytest.raises(UserError, match=f"unknown task 'FrozenLake-NotSlipery-v1': did you mean '{TASK}'"):
        board.of_task("FrozenLake-NotSlipery-v1")


def test_two_runs_of_one_player_have_names_of_their_own(own: Path) -> None:
    """As of one model with two temperatures."""
    for run in [path.parent for path in own.rglob("config.lock.json")]:
        for temperature in (0.5, 1.0):
            as_somebody(run, identity={"kind": "language model", "temperature": temperature})
        shutil.rmtree(run)
    board = read_leaderboard(own)
    names = {board.name(result) for result in board.results}
    assert names == {"random (temperature 0.5)", "random (temperature 1.0)"}


def as_somebody(run: Path, **changes: Any) -> Path:
    """A copy of a run with another configuration, and a summary that fits it: what only the player could tell is changed."""
    config = json.loads((run / "config.lock.json").read_text()) | changes
    copy = Path(shutil.copytree(run, run.parent / run_hash(config)))
    (copy / "config.lock.json").write_text(json.dumps(config))
    return as_claimed(copy)


def as_claimed(run: Path) -> Path:
    """Makes the summary of a run fit the hash that its folder claims."""
    result = load_result(run)
    figures = summarise(result.task, [episode.seed for episode in result.episodes], result.scores, int(run.name, 16))
    (run / "results.json").write_text(json.dumps({**result.summary, **figures, "run": run.name}))
    return run


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
    "another name": ("config.lock.json", with_json(player="me"), "the run hash of its configuration"),
    "other seeds": ("episodes.parquet", with_column("seed", lambda n: pa.array(range(n))), "are not those of the suite"),
    "other replies": ("steps.parquet", with_column("reply", lambda n: pa.array(["no"] * n)), "its reply does not say"),
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
    "a list": ("results.json", lambda _: b"[]", "is no JSON object"),
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
def test_what_does_not_follow_from_the_rules_is_not_listed(played: Path, tmp_path: Path, what: str) -> None:
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


def test_in_a_dataset_it_is_said_and_the_others_are_listed(loopback: Loopback, played: Path) -> None:
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
    assert {board["refused"][name] for name in {*strange, *shown}} == {"it is no file of a run, and was not opened"}
    fetched = {line.partition("/results/")[2].rpartition("/")[0] for line in loopback.requests("/resolve/")}
    downloaded = {"/".join(path.split("/")[:4]) for path in good} | {*places} - {places[list(SPOILED).index("a giant")]}
    assert fetched == downloaded

    done = loopback.owner.attempt(msgrpo, "leaderboard", repo)
    assert done.code == 0
    assert done.err.count("\nnot listed: ") == len(board["refused"])
    assert "\x1b" not in done.err


def test_a_stored_table_is_never_believed(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push, played / "random", repo)
    table = with_column("reward", lambda n: pa.array([1.0] * n))(loopback.files(repo, "dataset")["leaderboard.parquet"])
    loopback.owner.call(put, repo, {"leaderboard.parquet": table}, "dataset")
    before, after = (loopback.owner.call(read, repo, revision) for revision in (pushed.commit, "main"))
    assert [run["reward"] for run in before["results"]] == [run["reward"] for run in after["results"]]


def test_two_runs_that_claim_one_hash_are_both_left_out_unless_they_are_the_same(own: Path) -> None:
    """Else whoever comes first in the alphabet could speak for another player."""
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
    assert sorted(board.refused.values()) == ["two runs of one hash differ"] * 2
    assert {result.player for result in board.results if result.task == TASK} == {"greedy"}


@dataclass(frozen=True)
class Clairvoyant:
    """Knows the ice in advance: where it will slip follows from the seed, which players are never told."""

    path: list[str]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=f"<action>{self.path[prompt.state.turn]}</action>") for prompt in prompts]


def best_path(lake: FrozenLake, seed: int) -> list[str]:
    """Actions that reach the goal on just this ice, where there are any."""
    state = lake.initial_state(stream(seed, "initial_state"))
    slips = stream(seed, "dynamics", 0).integers(3, size=lake.horizon)
    paths: dict[Any, tuple[Any, list[str]]] = {state.player: (state, [])}
    for slip in slips:
        ahead: dict[Any, tuple[Any, list[str]]] = {}
        for now, path in paths.values():
            for action in lake.actions:
                after = lake.outcomes(now, action)[slip][1]
                if after.player == after.goal:
                    return [*path, action, *["Up"] * lake.horizon]
                if not after.terminal:
                    ahead.setdefault(after.player, (after, [*path, action]))
        paths = ahead or {state.player: (state, ["Up"] * lake.horizon)}
    return ["Up"] * lake.horizon


def test_who_knows_the_ice_in_advance_replays_and_is_flagged_above_the_optimum(tmp_path: Path) -> None:
    """All its rewards follow from the rules; that nobody can be so lucky is what gives it away."""
    task = "FrozenLake-Slippery-v1"
    lake, suite = make_game(task), Suite(name="tiny", tasks=(task,), episodes=30)
    assert isinstance(lake, FrozenLake)
    player = Player(name="lucky", policy=Clairvoyant([]), identity={"kind": "scripted"}, folder="lucky/v1")
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_a_run_can_be_changed_to_crash_it(
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


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20) | st.sampled_from(["Left", "ok", "unreadable", "<action>Up</action>"]),
    "list": st.lists(st.none() | st.text(max_size=5), max_size=3),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_value_of_a_run_can_be_changed_to_crash_it_or_to_pass(
    played: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In tables that are sound as tables: some values of a column are others, or none."""
    files = one_run(played)
    name = data.draw(st.sampled_from(sorted(path for path in files if path.endswith(".parquet"))))
    table = pq.read_table(pa.BufferReader(files[name]))
    column = data.draw(st.sampled_from(table.column_names))
    kind, values = table.schema.field(column).type, table[column].to_pylist()
    for _ in range(data.draw(st.integers(1, 3))):
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(
            VALUES["list" if pa.types.is_list(kind) else kind] | st.none()
        )
    changed = table.set_column(table.column_names.index(column), column, pa.array(values, kind))
    folder = tmp_path_factory.mktemp("fuzz") / Path(name).parent.name
    folder.mkdir()
    for path, original in files.items():
        (folder / Path(path).name).write_bytes(original)
    pq.write_table(changed, folder / Path(name).name)
    try:
        checked_run(folder)
    except UserError:
        assert not changed.equals(table)
        return
    said_only = {"reply", "finish", "prompt_tokens", "reply_tokens"}  # by the player: as long as it still says the same action
    assert column in said_only or values == pytest.approx(table[column].to_pylist(), abs=1e-9)


# ---- what is no leaderboard


def test_each_refusal_is_one_line_that_says_what_to_do(loopback: Loopback, tmp_path: Path, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo, private=True)
    cases: list[tuple[Client, list[object], str]] = [
        (loopback.owner, ["ada/none"], "there is no 'ada/none'"),
        (loopback.nobody, [repo], "is missing or private, and no token was found"),
        (loopback.owner, [repo, "--revision", "none"], "has no such branch or commit"),
        (loopback.owner, [repo, "--task", "Snake-Solo-v1"], "unknown task 'Snake-Solo-v1'"),
        (loopback.owner, ["../x"], "expected USER/NAME"),
        (loopback.owner, [tmp_path], "no runs under"),
        (loopback.client(HF_HUB_OFFLINE="1"), [repo], "HF_HUB_OFFLINE is set"),
    ]
    for client, arguments, words in cases:
        assert words in refused(client.attempt(msgrpo, "leaderboard", *arguments))


def test_a_dataset_without_runs_has_an_empty_table(loopback: Loopback) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {"data.txt": b"1"}, "dataset")
    assert loopback.owner.call(read, repo)["results"] == []
    assert loopback.owner.attempt(msgrpo, "leaderboard", repo).code == 0


def test_a_dataset_of_endless_runs_is_refused_before_anything_is_downloaded() -> None:
    files = [RepoFile(path=f"results/a/b/c/{number:016x}/results.json", size=1, oid="") for number in range(5_001)]
    with pytest.raises(UserError, match="has 5,001 runs: expected at most 5,000"):
        read_published(Target(repo_id="ada/lake", kind="dataset"), "main", {file.path: file for file in files})


def test_its_files_are_those_that_are_pushed() -> None:
    assert set(FILES) == NAMES
