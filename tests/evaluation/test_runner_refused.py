"""Runs that are refused in one line."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import find_results, load_result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from tests.evaluation.played import FINAL, LAKE, MIXED, SHORT, SLIPPERY, Silent, Talker, talker


def test_two_players_of_one_name_do_not_share_a_folder(tmp_path: Path) -> None:
    first = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    second = run_task(replace(talker(Talker()), identity={"kind": "test", "player": "other"}), LAKE, SLIPPERY, tmp_path)
    assert first.folder != second.folder
    assert len(find_results(tmp_path)) == 2


def test_another_run_in_the_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    mine = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    other = run_task(talker(Talker()), replace(LAKE, name="other"), SLIPPERY, tmp_path)
    shutil.rmtree(mine.folder)
    shutil.copytree(other.folder, mine.folder)
    with pytest.raises(UserError, match="has a different run from the one its name says: move it") as caught:
        run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(FINAL - {"timing.json"}))
@pytest.mark.parametrize("damage", ["empty", "half", "missing"])
def test_a_damaged_file_is_one_line_and_no_traceback(name: str, damage: str, tmp_path: Path) -> None:
    result = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    file = result.folder / name
    whole = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"")
    with pytest.raises(UserError, match=r"no readable run in .*expected the files that `msgrpo eval` writes") as caught:
        load_result(result.folder)
    assert "\n" not in str(caught.value)


def test_rewards_outside_the_range_that_a_game_declares_are_one_line_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        wrong.setattr("msgrpo_hub.evaluation.summary.return_range", lambda _: (5.0, 6.0))
        with pytest.raises(UserError, match=f"{SLIPPERY}: .* correct the reward_range") as caught:
            run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    assert "\n" not in str(caught.value)
    assert run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path).complete


def test_an_output_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(UserError, match=r"cannot write to .*choose another output folder"):
            evaluate("random", LAKE, folder)


# ---- who plays what


def test_optimal_plays_only_the_solved_games_and_the_planner_only_the_others(tmp_path: Path) -> None:
    assert [result.task for result in evaluate("optimal", replace(MIXED, episodes=1), tmp_path)] == [SLIPPERY]
    assert [result.task for result in evaluate("planner", replace(MIXED, episodes=1), tmp_path)] == list(MIXED.tasks[1:])
    with pytest.raises(UserError, match="'optimal' can play no task of the suite 'snakes': choose another player or suite"):
        evaluate("optimal", Suite(name="snakes", tasks=(SHORT,), episodes=1), tmp_path)


@pytest.mark.parametrize("name", ["optimall", "pockett", "random_safe", "planer"])
def test_a_misspelt_player_is_refused_before_anyone_plays(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"unknown player '{name}': did you mean '"):
        evaluate(["random", name], LAKE, tmp_path / "out")
    assert not (tmp_path / "out").exists()
