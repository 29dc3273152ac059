"""Rollout tables are verified: what was changed in them is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.evaluation.verify import verify_folder
from msgrpo_hub.storage.tables import Origin
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
    "legality": ("steps", lambda rows: rows[0].update(legal=not rows[0]["legal"]), "its status or its legality"),
    "optimal actions": ("steps", lambda rows: rows[0].update(optimal_actions=[]), "turn 1: optimal_actions does not follow"),
    "a prompt": ("steps", lambda rows: rows[0]["prompt"][0].update(content="Hi"), "turn 1: prompt does not follow"),
    "the end": ("default", lambda rows: rows[0].update(terminated=not rows[0]["terminated"]), "another end"),
    "the sum": ("default", lambda rows: rows[0].update(reward=9.0), "reward does not follow"),
    "advantages for some of the steps": ("steps", lambda rows: rows[0].update(advantage=None), "for only some of its steps"),
    "a prompt format": ("default", lambda rows: rows[0].update(prompt_format="json"), "turn 1: prompt does not follow"),
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
