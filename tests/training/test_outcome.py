"""A run that learned nothing says so, with the likely cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.outcome import learned_nothing

if TYPE_CHECKING:
    from tests.command import Command

CONFIG = TrainConfig(updates=2, groups=8, max_new_tokens=32)
MOVED = {"q.lora_A.weight": torch.ones(2, 2), "q.lora_B.weight": torch.ones(2, 2)}
STILL = MOVED | {"q.lora_B.weight": torch.zeros(2, 2)}
LINE = {"zero_variance_groups": 8.0, "truncated_rate": 0.0, "unreadable_rate": 0.0, "success": 0.0}


def said(**changes: float) -> str:
    return learned_nothing(CONFIG, [LINE | changes] * 2, STILL)


def test_a_run_with_one_group_of_some_spread_learned_something() -> None:
    assert learned_nothing(CONFIG, [LINE, LINE | {"zero_variance_groups": 7.0}], MOVED) == ""


def test_groups_without_variance_throughout_are_told_with_the_likely_cause_and_advice() -> None:
    begin = "in all 16 groups every episode had the same return, so there were no advantages; "
    causes = {
        said(truncated_rate=0.75): "75% of the replies were truncated at 32 tokens: raise --max-new-tokens",
        said(unreadable_rate=1.0): "100% of the replies could not be parsed: take an instruction-tuned --model or another "
        "--prompt-format",
        said(success=1.0): "every episode succeeded: take a harder --game",
        said(): "the episodes of a group ended alike: raise --temperature or --group-size, or take an easier --game",
    }
    assert len(causes) == 4
    for line, cause in causes.items():
        assert line == begin + cause


def test_an_adapter_whose_matrices_b_are_all_zero_is_told_to_be_its_base() -> None:
    metrics = [LINE | {"zero_variance_groups": 0.0}]
    assert learned_nothing(CONFIG, metrics, MOVED) == ""
    assert learned_nothing(CONFIG, metrics, STILL).endswith("are 0, so it is equal to its base: raise --learning-rate")


@pytest.mark.slow
def test_the_terminal_and_the_summary_say_it(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    still = ["--updates", "1", "--max-new-tokens", "1", "--format-penalty", "0"]
    done = msgrpo("train", *flags, *still, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    why = json.loads((tmp_path / "run" / "summary.json").read_text())["learned_nothing"]
    assert why.startswith("in all 2 groups every episode had the same return, so there were no advantages; ")
    assert why.endswith("raise --max-new-tokens")
    assert f"\nIt learned nothing: {why}\n" in done.out
