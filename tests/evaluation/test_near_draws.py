"""A run says how many of its draws another rounding may turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.tables import near_draws
from msgrpo_hub.players.registry import PlayerSettings
from tests.evaluation.played import LAKE, SLIPPERY, Talker, talker


class Near(Talker):
    """Every third reply has a near draw."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = super().complete(prompts, rngs)
        return [replace(reply, near_draws=int(len(reply.text) % 3 == 0)) for reply in replies]


def test_a_run_says_how_many_draws_were_near_also_after_an_interruption(tmp_path: Path) -> None:
    policy = Near()
    result = run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "whole", 5)
    count = sum(len(step.completion.text) % 3 == 0 for episode in result.episodes for step in episode.steps)
    assert result.summary["near_draws"] == count > 3
    part = run_task(talker(Near(down=True)), LAKE, SLIPPERY, tmp_path / "part", 5)
    assert 0 < part.summary["near_draws"] < count
    assert run_task(talker(Near()), LAKE, SLIPPERY, tmp_path / "part", 5).summary == result.summary
    draws = result.summary["reply_tokens"]
    assert near_draws([result]) == [
        f"talker: {count} of {draws:,} samples are within 0.0001 of a boundary: other rounding may change them"
    ]


@pytest.mark.parametrize("mode", ["generate", "score"])
def test_a_model_on_this_machine_has_a_number_and_a_scripted_player_has_none(mode: str, tmp_path: Path) -> None:
    settings = PlayerSettings(mode=mode, max_new_tokens=8)  # type: ignore[arg-type]
    scripted, model = evaluate(["random", "pocket"], replace(LAKE, episodes=1), tmp_path, settings=settings)
    assert "near_draws" not in scripted.summary
    assert 0 <= model.summary["near_draws"] <= model.summary["reply_tokens"]
    assert [line.partition(":")[0] for line in near_draws([scripted, model])] == ["pocket"]
