"""Rollout tables are verified: what was changed in them is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.verify_rollouts import verify_folder
from msgrpo_hub.storage.schema import CONFIGS
from msgrpo_hub.storage.tables import Origin, read_rollouts, tables
from tests.storage.test_rollout_tables import LAKE, ORIGIN, SNAKE, played, rewrite, save


def found(folder: Path) -> str:
    return "; ".join(problem for row in verify_folder(folder) for problem in row["problems"])


@pytest.mark.parametrize("origin", [ORIGIN, None], ids=["data set", "log of a training"])
def test_untouched_episodes_pass_and_are_counted(origin: Origin | None, tmp_path: Path) -> None:
    save(tmp_path, played(LAKE), origin)
    save(tmp_path, played(SNAKE), origin, name="train-2.parquet")
    rows = verify_folder(tmp_path)
    assert [(row["player"], row["task"], row["episodes"], row["problems"]) for row in rows] == [
        ("training", LAKE, 6, []),
        ("training", SNAKE, 6, []),
    ]


def other_action(rows: list[dict[str, Any]]) -> None:
    row = rows[0]
    other = next(action for action in ("Left", "Down", "Right", "Up") if action != row["action"])
    row.update(action=other, reply=f"<action>{other}</action>")


TAMPERED: dict[str, tuple[str, Callable[[list[dict[str, Any]]], Any], str]] = {
    "an action with its reply": ("steps", other_action, "the record has another|does not follow"),
    "an action alone": ("steps", lambda rows: rows[0].update(action="Up" if rows[0]["action"] != "Up" else "Down"), "seed"),
    "a reward": ("steps", lambda rows: rows[0].update(reward=1.0), "reward 1 on turn 1, where the rules give 0"),
    "an observation": ("steps", lambda rows: rows[0].update(observation="?"), "another observation"),
    "a status": ("steps", lambda rows: rows[0].update(status="unreadable"), "its status or its legality"),
    "legality": ("steps", lambda rows: rows[0].update(legal=not rows[0]["legal"]), "its status or its legality"),
    "legal actions": ("steps", lambda rows: rows[0].update(legal_actions=["Up"]), "turn 1: legal_actions does not follow"),
    "optimal actions": ("steps", lambda rows: rows[0].update(optimal_actions=[]), "turn 1: optimal_actions does not follow"),
    "a regret": ("steps", lambda rows: rows[0].update(regret=0.7), "turn 1: regret does not follow"),
    "a prompt": ("steps", lambda rows: rows[0]["prompt"][0].update(content="Hi"), "turn 1: prompt does not follow"),
    "success": ("default", lambda rows: rows[0].update(success=not rows[0]["success"]), "success"),
    "the end": ("default", lambda rows: rows[0].update(terminated=not rows[0]["terminated"]), "another end"),
    "the sum": ("default", lambda rows: rows[0].update(reward=9.0), "reward does not follow"),
    "the game": ("default", lambda rows: rows[0].update(game="Snake-Solo-v1"), "not where they should be"),
    "a member": ("default", lambda rows: rows[0].update(member=7), "not where they should be"),
    "advantages for some of the steps": ("steps", lambda rows: rows[0].update(advantage=None), "for only some of its steps"),
    "a prompt format": ("default", lambda rows: rows[0].update(prompt_format="json"), "turn 1: prompt does not follow"),
    "a prompt format that nobody has": ("default", lambda rows: rows[0].update(prompt_format="os:x"), "turn 1: prompt does not"),
}


@pytest.mark.parametrize(("config", "change", "words"), TAMPERED.values(), ids=TAMPERED)
def test_a_changed_record_is_found_out(
    config: str,
    change: Callable[[list[dict[str, Any]]], Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rewrite(save(tmp_path, played(LAKE)), config, change)
    assert re.search(words, found(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(tmp_path)])
    assert ended.value.code == 2
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("seed", 5, "another observation than the rules give on turn 1"),
        ("game", "Snake-Solo-v1", "another observation than the rules give on turn 1"),
        ("game", "Chess-v1", "unknown game 'Chess-v1'"),
    ],
)
def test_another_seed_or_game_is_found_out_although_both_tables_agree(
    column: str, value: Any, words: str, tmp_path: Path
) -> None:
    save(tmp_path, played(LAKE))
    for config in CONFIGS:
        old = pq.ParquetFile(tmp_path / config / "train-1.parquet").read()[column][0].as_py()
        rewrite(tmp_path, config, lambda rows, old=old: [row.update({column: value}) for row in rows if row[column] == old])
    assert words in found(tmp_path)


def test_a_folder_with_neither_is_told_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no episodes under"):
        verify_folder(tmp_path)


def test_reading_tables_that_do_not_fit_together_is_an_error() -> None:
    first, second = tables(played(LAKE)), tables(played(SNAKE))
    with pytest.raises(ValueError, match="not where they should be"):
        read_rollouts(first["default"], second["steps"])
