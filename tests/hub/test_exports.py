"""Exports in the formats of the Hub have the scores and intervals of the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import parse_eval_result_entries

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.exports import model_of, write_exports
from msgrpo_hub.hub.leaderboard import Leaderboard, read_leaderboard
from msgrpo_hub.players.registry import Player
from msgrpo_hub.players.scripted import choose_random
from tests import identities
from tests.evaluation.played import Counted
from tests.hub.commands import msgrpo, push_results, refused
from tests.hub_server.cards import errors_of
from tests.hub_server.lanes import Loopback
from tests.identities import MODEL, batched, served

TASKS = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")
ADAPTER = batched(identities.ADAPTER | {"base": "Qwen/Qwen2.5-3B-Instruct", "adapter": "ada/lake"})
IDENTITIES: list[tuple[dict[str, Any], str | None]] = [
    (ADAPTER, "ada/lake"),
    (served("provider:nebius/Qwen/Qwen2.5-72B-Instruct"), "Qwen/Qwen2.5-72B-Instruct"),
    ({"kind": "scripted", "player": "random", "version": 1}, None),
    (batched(MODEL | {"base": "pocket", "base_commit": "0" * 64}), None),
    (ADAPTER | {"adapter": "folder:adapter"}, None),
    (served("endpoint:http://127.0.0.1:8000/v1#model"), None),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with the identity of a model, numbers of tokens, and the actions of `random`."""
    folder = tmp_path_factory.mktemp("models")
    player = Player(name="ada/lake", policy=Counted(choose_random), identity=ADAPTER, folder="ada__lake/x")
    for task in TASKS:
        run_task(player, Suite(name="tiny", tasks=(task,), episodes=30), task, folder)
    return folder


@pytest.fixture(scope="module")
def board(folder: Path) -> Leaderboard:
    return read_leaderboard(folder)


def test_the_files_of_a_model_have_the_formats_of_the_hub(board: Leaderboard, tmp_path: Path) -> None:
    home = tmp_path / "models" / "ada__lake" / "x"
    index, newer = home / "model-index.yaml", home / ".eval_results/text-games.yaml"
    assert write_exports(board, tmp_path, benchmark_id="ada/text-games") == [index, newer]
    metadata = yaml.safe_load(index.read_text())
    assert list(errors_of("model", metadata)) == []
    [model] = metadata["model-index"]
    assert model["name"] == "lake"
    values = {result["dataset"]["type"]: result["metrics"][0]["value"] for result in model["results"]}
    assert values == {result.task: round(result.summary["reward"]["mean"], 4) for result in board.results}
    intervals = [result["metrics"][0]["args"]["interval_95"] for result in model["results"]]
    assert intervals == [[round(result.summary["reward"][end], 4) for end in ("low", "high")] for result in board.results]
    entries = parse_eval_result_entries(yaml.safe_load(newer.read_text()))
    assert [(entry.dataset_id, entry.task_id) for entry in entries] == [("ada/text-games", task) for task in TASKS]
    assert {entry.task_id: entry.value for entry in entries} == values
    assert "30 test episodes, generate, temperature 0.5" in str(entries[0].notes)
    assert entries[0].source_url is None


def test_a_model_is_named_by_its_published_id_and_others_are_left_out(board: Leaderboard, tmp_path: Path) -> None:
    [result, _] = board.results
    results = [replace(result, config=result.config | {"identity": identity}) for identity, _ in IDENTITIES]
    assert [model_of(one) for one in results] == [name for _, name in IDENTITIES]
    assert len(write_exports(replace(board, results=(results[0], *results[2:])), tmp_path)) == 1
    with pytest.raises(UserError, match="no published model"):
        write_exports(replace(board, results=tuple(results[2:])), tmp_path)


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
