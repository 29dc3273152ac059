"""The leaderboard in the repository: it is made from its results, shows players that are in the tree, and replays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from evaluate import EvaluationSuite

from benchmark import __main__ as benchmark
from benchmark import page
from benchmark.small_models import ARCHIVES
from benchmark.stored import archive_of, pack, unpacked
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, find_results, player_names
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.evaluation.verify import problems
from tests.files import hashes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def stored() -> Iterator[list[Result]]:
    with unpacked() as folder:
        yield find_results(folder)


def test_the_readme_and_the_bundle_of_the_space_are_what_the_results_give(stored: list[Result]) -> None:
    assert benchmark.pages(stored) == {path: path.read_text(encoding="utf-8") for path in (benchmark.README, benchmark.BUNDLE)}


def test_every_listed_player_has_played_every_task_that_it_can(stored: list[Result]) -> None:
    suite, players = page.listed()
    played = {(result.player, result.task) for result in page.current(stored)}
    tasks = load_suite(suite).tasks
    trained = {path.stem for path in (ROOT / "benchmark/dqn/weights").glob("*.safetensors")}
    can = {"optimal": {t for t in tasks if "Lake" in t}, "planner": {t for t in tasks if "Snake" in t}}
    can["dqn:benchmark/dqn/weights"] = trained & {*tasks}
    for name in (player["name"] for player in players):
        assert can.get(name, {*tasks}) == {task for player, task in played if player == name}, name


def test_rows_are_those_of_the_players_in_the_tree(stored: list[Result]) -> None:
    shown = page.current(stored)
    assert {page.name_of(result, player_names(shown)) for result in shown} >= {"random", "greedy", "optimal", "planner"}
    [random] = [result for result in shown if result.player == "random" and result.task == "Snake-Standard-v1"]
    for changes, why in [
        ({"identity": {**random.config["identity"], "version": 0}}, "not the player in the tree (version)"),
        ({"player": "randon"}, "not listed"),
    ]:
        assert page.why_stale(replace(random, config=random.config | changes)) == why


def test_what_is_packed_is_what_was_unpacked(tmp_path: Path) -> None:
    shutil.copy(archive_of("optimal"), tmp_path)
    before = hashes(tmp_path)
    with unpacked(tmp_path) as folder:
        pack(folder, tmp_path)
        assert hashes(tmp_path) == before
        run = next(folder.rglob("results.json"))
        (run.parent / ".lock").write_text("{}")
        run.write_text("{}")
        pack(folder, tmp_path)
    with unpacked(tmp_path) as folder:
        assert "{}" in {path.read_text() for path in folder.rglob("results.json")}
        assert not list(folder.rglob(".lock"))


@pytest.mark.parametrize("player", ["lake", pytest.param("pocket", marks=pytest.mark.long)])
def test_the_stored_runs_of_models_replay_to_the_bit(player: str, stored: list[Result]) -> None:
    results = [result for result in stored if result.player == player]
    assert results
    assert [problem for result in results for problem in problems(result)] == []


def test_the_stored_runs_of_small_models_replay() -> None:
    with unpacked(ARCHIVES) as folder:
        results = find_results(folder)
        assert {"random", "optimal", "folder:smollm2-135m", "folder:qwen-0.5b"} <= {result.player for result in results}
        assert [problem for result in results for problem in problems(result)] == []


def test_a_stale_table_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "README.md"
    stale.write_text(benchmark.README.read_text().replace("| [random](", "| [randon](", 1))
    monkeypatch.setattr(benchmark, "README", stale)
    with pytest.raises(UserError, match=r"README\.md of the results is stale: run `python -m benchmark report`"):
        benchmark.check()


def test_the_evaluation_suite_gives_a_row_per_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    suite = EvaluationSuite.load(str(ROOT / "benchmark" / "metrics" / "text_games_suite"))
    rows = suite.run("random-safe", output_dir=str(tmp_path / "runs"))
    assert [row["task_name"] for row in rows] == list(load_suite("quick").tasks)
    assert all(row["reward_low"] <= row["reward"] <= row["reward_high"] and row["episodes"] == 50 for row in rows)
    shutil.rmtree(tmp_path / "runs")
