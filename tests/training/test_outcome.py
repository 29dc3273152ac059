"""A run that learned nothing says so, with the likely cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.summary import check_start, outcome
from tests.training.interrupted import metrics as metrics_of

if TYPE_CHECKING:
    from tests.command import Command

CONFIG = TrainConfig(updates=2, groups=8, max_new_tokens=32)
MOVED = {"q.lora_A.weight": torch.ones(2, 2), "q.lora_B.weight": torch.ones(2, 2)}
STILL = MOVED | {"q.lora_B.weight": torch.zeros(2, 2)}
LINE = {"zero_variance_groups": 8.0, "truncated_rate": 0.0, "unreadable_rate": 0.0, "success": 0.0}


BEGIN = "in all 16 groups every episode had the same return, so there were no advantages; "
TAUGHT = {"teacher_reward": 1.0, "loss": 0.5}


def said(config: TrainConfig = CONFIG, **changes: float) -> str:
    return outcome(config, [LINE | changes] * 2, STILL)["learned_nothing"]


def test_groups_without_variance_throughout_are_told_with_the_likely_cause_and_advice() -> None:
    causes = {
        said(
            truncated_rate=0.75
        ): "0% of the replies could not be parsed and 75% were truncated: raise --max-new-tokens (it was 32), "
        "or start with --teacher auto --taught 20, or take --prompt-format action-only, or take an easier --game",
        said(unreadable_rate=1.0): "100% of the replies could not be parsed and 0% were truncated: start with --teacher auto "
        "--taught 20, or take --prompt-format action-only, or take an easier --game",
        said(success=1.0): "every episode succeeded: take a harder --game",
        said(): "the episodes of a group ended alike: raise --temperature or --group-size, or take an easier --game",
    }
    assert len(causes) == 4
    for line, cause in causes.items():
        assert line == BEGIN + cause


def test_rewards_that_taught_nothing_after_a_teacher_are_told_apart_from_a_run_that_learned_nothing() -> None:
    taught = replace(CONFIG, teacher="optimal", taught=1, updates=3)
    why = outcome(taught, [TAUGHT, LINE, LINE], MOVED)
    assert why == {
        "rewards_taught_nothing": BEGIN + "the episodes of a group ended alike: raise --temperature or --group-size, "
        "or take an easier --game"
    }
    assert outcome(taught, [TAUGHT, LINE, LINE | {"zero_variance_groups": 7.0}], MOVED) == {}
    assert outcome(replace(taught, updates=1), [TAUGHT], MOVED) == {}


def test_an_adapter_whose_matrices_b_are_all_zero_is_told_to_be_its_base() -> None:
    metrics = [LINE | {"zero_variance_groups": 0.0}]
    assert outcome(CONFIG, metrics, MOVED) == {}
    assert outcome(CONFIG, metrics, STILL)["learned_nothing"].endswith("are 0, so it equals its base: raise --learning-rate")


# ---- while it trains


def test_three_updates_without_advantages_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    config, lines = replace(CONFIG, updates=9), [LINE | {"unreadable_rate": 0.9}] * 6
    for index in range(1, 7):
        check_start(config, lines[:index])
    assert [record.getMessage().partition(" were truncated: ")[0] for record in caplog.records] == [
        "updates 1 to 3 changed nothing: 90% of the replies could not be parsed and 0%"
    ]
    caplog.clear()
    check_start(config, [LINE | {"zero_variance_groups": 7.0}, *lines[:2]])  # not yet three in a row
    check_start(config, [LINE | {"success": 1.0}] * 3)  # nothing is left to learn
    check_start(config, [TAUGHT] * 3)
    assert not caplog.records
    check_start(replace(config, teacher="optimal", taught=2), [TAUGHT, TAUGHT, *lines[:3]])
    assert caplog.records[0].getMessage().startswith("updates 3 to 5 changed nothing: ")


def test_a_run_whose_replies_never_name_an_action_is_stopped_once_after_its_third_update_with_rewards() -> None:
    config, line = replace(CONFIG, updates=9), LINE | {"unreadable_rate": 0.75, "truncated_rate": 0.25}
    check_start(config, [line] * 2)
    with pytest.raises(UserError, match=r"stopped after update 3, which is saved, .* start with --teacher auto .* --resume"):
        check_start(config, [line] * 3)
    check_start(config, [line] * 4)
    check_start(replace(config, updates=3), [line] * 3)  # it ends anyway


@pytest.mark.slow
def test_a_stopped_run_is_saved_and_goes_on_with_resume(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    """Replies of one token, always the likeliest, in which no thought ends."""
    still = ["--updates", "4", "--max-new-tokens", "1", "--temperature", "0.01"]
    stopped = msgrpo("train", *flags, *still, "--output-dir", tmp_path / "run")
    assert stopped.code == 2
    assert stopped.err.splitlines()[-1].startswith("error: stopped after update 3, which is saved, because rewards can teach")
    assert len(metrics_of(tmp_path / "run")) == 3
    resumed = msgrpo("train", *flags, *still, "--output-dir", tmp_path / "run", "--resume")
    assert resumed.code == 0, resumed.err
    assert len(metrics_of(tmp_path / "run")) == 4


@pytest.mark.slow
def test_the_terminal_and_the_summary_say_it(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    still = ["--updates", "1", "--max-new-tokens", "1", "--format-penalty", "0"]
    done = msgrpo("train", *flags, *still, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    why = json.loads((tmp_path / "run" / "summary.json").read_text())["learned_nothing"]
    assert why.startswith("in all 2 groups every episode had the same return, so there were no advantages; ")
    assert why.endswith("or take an easier --game")
    assert f"\nIt learned nothing: {why}\n" in done.out
