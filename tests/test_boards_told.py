"""Readers see how many boards a task has, and which weights were trained before boards had splits."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite, hash_of
from msgrpo_hub.evaluation.tables import board_note, markdown_table, results_table
from msgrpo_hub.games import GAMES, distinct_boards, episode_seed
from msgrpo_hub.games.seeds import Split
from msgrpo_hub.rendering.report import report_page
from tests.games.test_splits import OneLake

ROOT = Path(__file__).parents[1]
LAKE = "FrozenLake-NotSlippery-v1"
BOARDS = {(50, "validation"): 31, (50, "test"): 36, (200, "test"): 75, (1000, "test"): 159}
"""(episodes, split) → different boards of the dry lake."""


@pytest.mark.parametrize(("episodes", "split"), [pytest.param(*key, marks=[pytest.mark.slow] * (key[0] > 50)) for key in BOARDS])
def test_boards_are_counted_as_in_the_guide(episodes: int, split: Split) -> None:
    assert distinct_boards(LAKE, tuple(episode_seed(LAKE, split, index) for index in range(episodes))) == BOARDS[episodes, split]
    guide = " ".join((ROOT / "docs" / "guide" / "evaluate.md").read_text().split())
    assert "200 test episodes of the dry lake have 75 different boards, and 1,000 have 159." in guide


def test_tables_say_on_how_many_boards_a_task_was_played(tmp_path: Path) -> None:
    results = evaluate("random", Suite(name="mine", tasks=(LAKE,), episodes=50), tmp_path)
    boards = BOARDS[50, "test"]
    assert f"50 test episodes on {boards} boards " in results_table(results)
    assert f"50 test episodes on {boards} boards;" in markdown_table(results, lambda result: result.player)
    assert f"50 test episodes on {boards} boards." in report_page(results)
    assert board_note(results[0]) == ""


def test_a_game_with_a_single_board_says_that_training_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(GAMES, "Single-v1", OneLake("Single-v1"))
    [result] = evaluate("random", Suite(name="mine", tasks=("Single-v1",), episodes=3), tmp_path)
    assert "3 test episodes on 1 board " in results_table([result])
    assert "The game has too few boards to divide: training has the same." in results_table([result])


@pytest.mark.parametrize("path", sorted((ROOT / "benchmark/dqn/weights").glob("*.safetensors")), ids=lambda path: path.stem)
def test_the_table_of_the_dqn_says_what_the_weights_say_and_their_tasks_have_not_changed(path: Path) -> None:
    with safe_open(path, framework="numpy") as file:
        made = file.metadata()
    row = f"| {path.stem} | {made['steps']} | {float(made['validation_reward']):.3f} | `{made['command']}` |"
    assert row in (ROOT / "benchmark/dqn/README.md").read_text().splitlines()
    assert made["task"] == hash_of(path.stem)
