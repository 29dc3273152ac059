"""Exports are valid by the schemas of other systems and have the runs' scores and uncertainty."""

from __future__ import annotations

import json
import math
import re
import shutil
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import parse_eval_result_entries

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.cli.schemas import schema
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.exports import every_eval_ever, record_path, write_exports
from msgrpo_hub.hub.leaderboard import Leaderboard, read_leaderboard
from msgrpo_hub.players.identity import Player
from msgrpo_hub.players.scripted import choose_random
from tests import identities
from tests.hub.conftest import msgrpo, refused
from tests.hub.pushed_results import push
from tests.hub_server.cards import faults_of
from tests.hub_server.lanes import Loopback
from tests.identities import MODEL, batched, served

TASKS = ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1")
LAKE = {"base": "Qwen/Qwen2.5-3B-Instruct", "adapter": "ada/lake"}
ADAPTER = batched(identities.ADAPTER | LAKE)
SCORED = {**ADAPTER, "mode": "score", "temperature": None, "max_new_tokens": None}
PROVIDED = served("provider:nebius/Qwen/Qwen2.5-72B-Instruct")
SERVED = served("endpoint:http://127.0.0.1:8000/v1#org/model", temperature=0.0)
NAMELESS: tuple[dict[str, Any], ...] = (
    {"kind": "scripted", "player": "random", "version": 1},
    batched(MODEL | {"base": "pocket", "base_commit": "0" * 64}),
    ADAPTER | {"adapter": "folder:adapter"},
    served("endpoint:http://127.0.0.1:8000/v1#model"),
)


def name_of(identity: dict[str, Any]) -> str:
    return str(next(identity[key] for key in ("player", "server", "adapter", "base") if key in identity))


def play(folder: Path, identity: dict[str, Any], episodes: int = 30) -> None:
    """Runs with the identity of a player; the actions are those of `random`."""
    name = name_of(identity)
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


def of(board: Leaderboard, task: str) -> Result:
    [result] = board.of_task(task).results
    return result


# ---- Every Eval Ever


def record(identity: dict[str, Any], folder: Path, episodes: int = 30) -> tuple[dict[str, Any], Result]:
    play(folder, identity, episodes)
    board = read_leaderboard(folder)
    return every_eval_ever(board, of(board, TASKS[0]), 1_750_000_000), of(board, TASKS[0])


def published_schema() -> dict[str, Any]:
    """The schema file of Every Eval Ever. Importing the package needs a newer Python; reading the file does not."""
    try:
        found = [file for file in files("every-eval-ever") or [] if file.name == "eval.schema.json"]
    except PackageNotFoundError:
        pytest.skip("pip install --no-deps --ignore-requires-python every-eval-ever")
    schema: dict[str, Any] = json.loads(found[0].read_text())
    return schema


@pytest.mark.parametrize("identity", [ADAPTER, SCORED, PROVIDED, SERVED])
@pytest.mark.parametrize("episodes", [1, 30])
def test_a_record_is_valid_by_the_schema_of_every_eval_ever(tmp_path: Path, identity: dict[str, Any], episodes: int) -> None:
    schema = published_schema()
    made, _ = record(identity, tmp_path, episodes)
    assert schema["version"] == made["schema_version"]
    jsonschema.Draft7Validator.check_schema(schema)
    errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(made)]
    assert errors == []
    unknown = set(made["evaluation_results"][0]) - set(schema["properties"]["evaluation_results"]["items"]["properties"])
    assert unknown == set()  # the schema lets them pass; its readers would not look at them
    del made["model_info"]["additional_details"]["deployment_type"]
    assert not jsonschema.Draft7Validator(schema).is_valid(made)


def test_a_record_carries_each_score_with_its_uncertainty(board: Leaderboard) -> None:
    result = of(board, TASKS[0])
    made = every_eval_ever(board, result, 1_750_000_000)
    rewards = np.array([score.reward for score in result.scores])
    reward, success = made["evaluation_results"]
    for evaluation, name, method in ((reward, "reward", "wilson"), (success, "success", "wilson")):
        figure, details = result.summary[name], evaluation["score_details"]
        assert details["score"] == figure["mean"]
        uncertainty = details["uncertainty"]
        interval = {"lower": figure["low"], "upper": figure["high"], "confidence_level": 0.95, "method": method}
        assert uncertainty["confidence_interval"] == interval
        assert uncertainty["num_samples"] == 30
        assert math.isclose(uncertainty["standard_deviation"], rewards.std(ddof=1))  # on this lake a reward is a success
        assert math.isclose(uncertainty["standard_error"]["value"], rewards.std(ddof=1) / 30**0.5)
    of_snake, _ = every_eval_ever(board, of(board, TASKS[1]), 0)["evaluation_results"]
    assert of_snake["score_details"]["uncertainty"]["confidence_interval"]["method"] == "studentised bootstrap"
    assert of_snake["score_details"]["uncertainty"]["num_bootstrap_samples"] == 9_999
    assert "num_bootstrap_samples" not in reward["score_details"]["uncertainty"]


def test_an_unknown_interval_is_left_out(tmp_path: Path) -> None:
    play(tmp_path, ADAPTER, 2)
    board = read_leaderboard(tmp_path)
    made = every_eval_ever(board, of(board, TASKS[1]), 1_750_000_000)
    reward, success = (evaluation["score_details"]["uncertainty"] for evaluation in made["evaluation_results"])
    assert reward.keys() == {"num_samples", "standard_deviation", "standard_error"}
    assert "confidence_interval" in success
    one, _ = record(ADAPTER, tmp_path / "one", episodes=1)
    assert one["evaluation_results"][0]["score_details"]["uncertainty"].keys() == {"num_samples", "confidence_interval"}


def test_every_score_lies_between_the_bounds_that_are_given(board: Leaderboard) -> None:
    for task, low, high in ((TASKS[0], 0.0, 1.0), (TASKS[1], -1.0, 20.0)):
        reward, success = every_eval_ever(board, of(board, task), 0)["evaluation_results"]
        bounds = reward["metric_config"]["min_score"], reward["metric_config"]["max_score"]
        assert bounds == (low, high)
        assert low <= reward["score_details"]["score"] <= high
        assert (success["metric_config"]["min_score"], success["metric_config"]["max_score"]) == (0, 1)


@pytest.mark.parametrize(
    ("identity", "name", "platform", "deployment", "weights"),
    [
        (ADAPTER, "ada/lake", None, "self_deployed", "open_weights"),
        (PROVIDED, "Qwen/Qwen2.5-72B-Instruct", "nebius", "externally_managed", "unknown"),
        (SERVED, "org/model", "its own server", "unknown", "unknown"),
    ],
)
def test_a_model_is_named_by_its_published_id(
    tmp_path: Path, identity: dict[str, Any], name: str, platform: str | None, deployment: str, weights: str
) -> None:
    made, result = record(identity, tmp_path)
    info = made["model_info"]
    assert (info["id"], info.get("inference_platform")) == (name, platform)
    details = info["additional_details"]
    assert (details["deployment_type"], details["model_availability"]) == (deployment, weights)
    assert record_path(result).startswith(f"data/msgrpo_hub/{name}/")
    assert details.get("base_commit") == identity.get("base_commit")


def test_the_same_run_is_the_same_file_and_two_runs_are_two(board: Leaderboard) -> None:
    paths = [record_path(result) for result in board.results]
    assert len(set(paths)) == 2
    assert paths == [record_path(result) for result in board.results]


# ---- the Hub's


def test_the_files_of_a_model_are_those_of_the_hub(board: Leaderboard, tmp_path: Path) -> None:
    written = write_exports(board, tmp_path, retrieved=0, benchmark_id="ada/text-games")
    home = tmp_path / "models" / "ada__lake" / "x"
    assert {path for path in written if home in path.parents} == {
        home / "model-index.yaml",
        home / ".eval_results/text-games.yaml",
    }
    assert len(written) == 4
    metadata = yaml.safe_load((home / "model-index.yaml").read_text())
    assert list(faults_of("model", metadata)) == []
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


def test_the_newer_form_is_written_only_for_a_benchmark_that_was_named(board: Leaderboard, tmp_path: Path) -> None:
    write_exports(board, tmp_path, retrieved=0)
    assert not list(tmp_path.rglob(".eval_results"))
    with pytest.raises(UserError, match="expected USER/NAME"):
        write_exports(board, tmp_path, retrieved=0, benchmark_id="../lake")


def test_unpublished_players_are_left_out(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for identity in NAMELESS:
        play(runs, identity)
    with pytest.raises(UserError, match="no published model"):
        write_exports(read_leaderboard(runs), tmp_path / "out", retrieved=0)
    play(runs, ADAPTER)
    assert len(write_exports(read_leaderboard(runs), tmp_path / "out", retrieved=0)) == 3


def test_the_command_exports_a_published_leaderboard_with_links_to_its_runs(
    loopback: Loopback, folder: Path, tmp_path: Path
) -> None:
    repo, out = loopback.repository("dataset"), tmp_path / "out"
    pushed = loopback.owner.call(push, folder, repo, private=False)
    done = loopback.nobody.attempt(msgrpo, "export", repo, out, "--benchmark-id", "ada/text-games", "--json")
    assert done.code == 0, done.err
    jsonschema.Draft202012Validator(schema("export")).validate(json.loads(done.out))
    paths = [Path(path) for path in json.loads(done.out)]
    assert sorted(paths) == sorted(path for path in out.rglob("*") if path.is_file())
    records = [json.loads(path.read_text()) for path in paths if path.suffix == ".json"]
    page = f"https://huggingface.co/datasets/{repo}/tree/{pushed.commit}/results/ada__lake/x/"
    for made in records:
        details = made["source_metadata"]["additional_details"]
        assert details["records"].startswith(page)
        assert f"{details['records'].partition(f'{pushed.commit}/')[2]}/results.json" in loopback.files(repo, "dataset")
        assert made["source_metadata"]["source_organization_name"] == "ada"
    [entries] = [yaml.safe_load(path.read_text()) for path in paths if ".eval_results" in path.parts]
    assert all(entry["source"]["url"].startswith(page) for entry in entries)
    assert done.err.endswith(f"Next: hf upload USER/MODEL {out}/models/ada__lake/x\n")
    assert "no runs under" in refused(loopback.nobody.attempt(msgrpo, "export", tmp_path / "out", out))


def test_an_export_to_a_full_disk_is_said_in_one_line_and_works_once_there_is_room(board: Leaderboard, disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(b"." * (shutil.disk_usage(disk).free - 4096))
    with pytest.raises(UserError, match=r"\(No space left on device\): the files that are there are whole; make room, then run"):
        write_exports(board, disk / "out", retrieved=0)
    filler.unlink()
    assert len(write_exports(board, disk / "out", retrieved=0)) == 3
