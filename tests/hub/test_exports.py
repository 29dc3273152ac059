"""Exports are what the Hub reads, with the runs' scores and intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import parse_eval_result_entries

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.exports import model_of, write_exports
from msgrpo_hub.hub.leaderboard import Leaderboard, read_leaderboard
from msgrpo_hub.players.registry import Player
from msgrpo_hub.players.scripted import choose_random
from tests import identities
from tests.hub.commands import msgrpo, push_results, refused
from tests.hub_server.cards import errors_of
from tests.hub_server.lanes import Loopback
from tests.identities import MODEL, batched, served

TASKS = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")
LAKE = {"base": "Qwen/Qwen2.5-3B-Instruct", "adapter": "ada/lake"}
ADAPTER = batched(identities.ADAPTER | LAKE)
PROVIDED = served("provider:nebius/Qwen/Qwen2.5-72B-Instruct")
SERVED = served("endpoint:http://127.0.0.1:8000/v1#org/model", temperature=0.0)
NAMELESS: tuple[dict[str, Any], ...] = (
    {"kind": "scripted", "player": "random", "version": 1},
    batched(MODEL | {"base": "pocket", "base_commit": "0" * 64}),
    ADAPTER | {"adapter": "folder:adapter"},
    served("endpoint:http://127.0.0.1:8000/v1#model"),
)


def play(folder: Path, identity: dict[str, Any], episodes: int = 30) -> None:
    """Runs with the identity of a player; the actions are those of `random`."""
    name = str(next(identity[key] for key in ("player", "server", "adapter", "base") if key in identity))
    place = f"{re.sub('[^A-Za-z0-9_]', '-', name.replace('/', '__'))}/x"
    player = Player(name=name, policy=ScriptedPolicy(choose_random), identity=identity, folder=place)
    for task in TASKS:
        run_task(player, Suite(name="tiny", tasks=(task,), episodes=episodes), task, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one model with an adapter. Read only."""
    folder = tmp_path_factory.mktemp("models")
    play(folder, ADAPTER)
    return folder


@pytest.fixture(scope="module")
def board(folder: Path) -> Leaderboard:
    return read_leaderboard(folder)


def test_the_files_of_a_model_are_those_of_the_hub(board: Leaderboard, tmp_path: Path) -> None:
    written = write_exports(board, tmp_path, benchmark_id="ada/text-games")
    home = tmp_path / "models" / "ada__lake" / "x"
    assert {path for path in written if home in path.parents} == {
        home / "model-index.yaml",
        home / ".eval_results/text-games.yaml",
    }
    assert len(written) == 2
    metadata = yaml.safe_load((home / "model-index.yaml").read_text())
    assert list(errors_of("model", metadata)) == []
    [model] = metadata["model-index"]
    assert model["name"] == "lake"
    values = {result["dataset"]["type"]: result["metrics"][0]["value"] for result in model["results"]}
    assert values == {result.task: round(result.summary["reward"]["mean"], 4) for result in board.results}
    intervals = [result["metrics"][0]["args"]["interval_95"] for result in model["results"]]
    assert intervals == [[round(result.summary["reward"][end], 4) for end in ("low", "high")] for result in board.results]
    entries = parse_eval_result_entries(yaml.safe_load((home / ".eval_results/text-games.yaml").read_text()))
    assert [(entry.dataset_id, entry.task_id) for entry in entries] == [("ada/text-games", task) for task in TASKS]
    assert {entry.task_id: entry.value for entry in entries} == values
    assert "30 test episodes, generate, temperature 0.5" in str(entries[0].notes)
    assert entries[0].source_url is None


@pytest.mark.parametrize(
    ("identity", "name"), [(ADAPTER, "ada/lake"), (PROVIDED, "Qwen/Qwen2.5-72B-Instruct"), (SERVED, "org/model")]
)
def test_a_model_is_named_by_its_published_id(tmp_path: Path, identity: dict[str, Any], name: str) -> None:
    play(tmp_path, identity)
    assert {model_of(result) for result in read_leaderboard(tmp_path).results} == {name}


def test_unpublished_players_are_left_out(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for identity in NAMELESS:
        play(runs, identity)
    with pytest.raises(UserError, match="no published model"):
        write_exports(read_leaderboard(runs), tmp_path / "out")
    play(runs, ADAPTER)
    assert len(write_exports(read_leaderboard(runs), tmp_path / "out")) == 1


def test_the_command_exports_a_published_leaderboard_with_links_to_its_runs(
    loopback: Loopback, folder: Path, tmp_path: Path
) -> None:
    repo, out = loopback.repository("dataset"), tmp_path / "out"
    pushed = loopback.owner.call(push_results, folder, repo, private=False)
    done = loopback.nobody.attempt(msgrpo, "export", repo, out, "--benchmark-id", "ada/text-games", "--json")
    assert done.code == 0, done.err
    paths = [Path(path) for path in json.loads(done.out)]
    assert sorted(paths) == sorted(path for path in out.rglob("*") if path.is_file())
    page = f"https://huggingface.co/datasets/{repo}/tree/{pushed.commit}/results/ada__lake/x/"
    [entries] = [yaml.safe_load(path.read_text()) for path in paths if ".eval_results" in path.parts]
    for entry in entries:
        assert entry["source"]["url"].startswith(page)
        assert f"{entry['source']['url'].partition(f'{pushed.commit}/')[2]}/results.json" in loopback.files(repo, "dataset")
    assert done.err.endswith(f"Next: hf upload USER/MODEL {out}/models/ada__lake/x\n")
    assert "no runs under" in refused(loopback.nobody.attempt(msgrpo, "export", tmp_path / "out", out))
