"""The leaderboard in the repository: its table is made from its results, and its results replay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from evaluate import EvaluationSuite

from benchmark import __main__ as benchmark
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.evaluation.verify import problems

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def stored() -> list[Result]:
    return find_results(benchmark.RESULTS)


def test_the_table_in_the_readme_is_what_the_results_give(stored: list[Result]) -> None:
    text = benchmark.README.read_text()
    assert benchmark.with_table(text, stored) == text
    assert "published, not measured" in text


def test_every_listed_player_has_played_every_task_that_it_can(stored: list[Result]) -> None:
    suite, players = benchmark.listed()
    played = {(benchmark._label(result), result.task) for result in stored if result.complete}
    tasks = load_suite(suite).tasks
    for player in players:
        name = player.get("label", player["name"])
        missing = [task for task in tasks if (name, task) not in played]
        solved = {"optimal": "FrozenLake", "planner": "Snake"}.get(player["name"], "")
        assert [task for task in missing if task.startswith(solved)] == []


@pytest.mark.slow
@pytest.mark.parametrize("player", ["quickstart", *(pytest.param(name, marks=pytest.mark.long) for name in ("pocket", "dqn"))])
def test_the_stored_runs_of_models_replay_to_the_bit(player: str, stored: list[Result]) -> None:
    results = [result for result in stored if result.folder.relative_to(benchmark.RESULTS).parts[0].startswith(player)]
    assert len(results) == 4
    assert [problem for result in results for problem in problems(result)] == []


def test_a_stale_table_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "README.md"
    stale.write_text(benchmark.README.read_text().replace("| [random](", "| [randon](", 1))
    monkeypatch.setattr(benchmark, "README", stale)
    with pytest.raises(UserError, match="stale: run `python -m benchmark report`"):
        benchmark.check()


def test_the_evaluation_suite_gives_a_row_per_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    suite = EvaluationSuite.load(str(ROOT / "benchmark" / "metrics" / "text_games_suite"))
    rows = suite.run("random-safe", output_dir=str(tmp_path / "runs"))
    assert [row["task_name"] for row in rows] == list(load_suite("quick").tasks)
    assert all(row["reward_low"] <= row["reward"] <= row["reward_high"] and row["episodes"] == 50 for row in rows)
    shutil.rmtree(tmp_path / "runs")
