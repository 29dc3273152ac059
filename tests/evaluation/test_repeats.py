"""Repeats: K plays of each board, with streams of their own; what they say is worked by hand or known beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import load_result
from msgrpo_hub.evaluation.runner import run_config, run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import pass_at_k
from msgrpo_hub.players.scripted import choose_optimal
from tests.evaluation.played import LAKE, SLIPPERY, Talker, contents, talker

FIRM = "FrozenLake-NotSlippery-v1"


# ---- pass@k


def test_pass_at_k_is_the_share_of_choices_of_k_plays_with_a_success() -> None:
    plays = [True, True, False, False, False]
    for k in range(1, 6):
        choices = list(itertools.combinations(plays, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert [pass_at_k(4, successes, 2) for successes in (0, 1, 3, 4)] == [0, 0.5, 1, 1]


def test_pass_at_k_worked_by_hand_over_three_boards(tmp_path: Path) -> None:
    """Boards with 0, 1 and 4 successes of 4: pass@1 = 5/12, pass@2 = (0 + 1/2 + 1) / 3, pass@4 = 2/3."""
    wins = [[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    suite = Suite(name="mine", tasks=(FIRM,), episodes=3, repeats=4)
    result = run_task(talker(Planned([bool(win) for board in wins for win in board])), suite, FIRM, tmp_path)
    figures = result.summary["repeated"]
    means = {k: figure["mean"] for k, figure in figures["pass_at"].items()}
    assert means == {"1": pytest.approx(5 / 12), "2": pytest.approx(1 / 2), "4": pytest.approx(2 / 3)}
    assert figures["runs"]["success"] == [pytest.approx(number / 3) for number in (1, 1, 2, 1)]
    assert figures["run_to_run"]["success"] == pytest.approx(np.sqrt(0.25) / 3)  # s² of 0, 0, 1, 0 is 1/4


@dataclass
class Planned:
    """Wins the episodes that it is told to win, in the order of the run; does nothing in the others."""

    wins: Sequence[bool]
    rngs: list[Any] = field(default_factory=list)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.rngs += [rng for rng in rngs if not any(rng is known for known in self.rngs)]
        of_run = [next(k for k, known in enumerate(self.rngs) if known is rng) for rng in rngs]
        return [Completion(text=move(prompt) if self.wins[k] else "") for prompt, k in zip(prompts, of_run, strict=True)]


def move(prompt: Prompt) -> str:
    return f"<action>{choose_optimal(prompt.game, prompt.state, np.random.default_rng(0))}</action>"


# ---- the plays


def test_members_have_streams_of_their_own_and_the_first_is_the_run_without_repeats(tmp_path: Path) -> None:
    states: list[str] = []

    class Watched(Talker):
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            states.extend(
                str(rng.bit_generator.state) for prompt, rng in zip(prompts, rngs, strict=True) if not prompt.state.turn
            )
            return super().complete(prompts, rngs)

    [alone] = evaluate("random", LAKE, tmp_path / "alone")
    result = run_task(talker(Watched()), replace(LAKE, repeats=3), SLIPPERY, tmp_path)
    assert len(states) == len(set(states)) == 36
    [repeated] = evaluate("random", LAKE, tmp_path / "three", repeats=3)
    keys = [(seed, member) for seed in LAKE.seeds(SLIPPERY) for member in range(3)]
    for run in (result, repeated):
        assert [(episode.seed, episode.member) for episode in run.episodes] == keys
    assert repeated.episodes[::3] == alone.episodes
    slips = {seed: {tuple(step.observation for step in e.steps) for e in result.episodes if e.seed == seed} for seed, _ in keys}
    assert all(len(plays) > 1 for plays in slips.values())


def test_one_play_per_board_is_the_run_as_it_was_byte_for_byte(tmp_path: Path) -> None:
    evaluate("random", LAKE, tmp_path / "none")
    evaluate("random", LAKE, tmp_path / "one", repeats=1)
    assert contents(tmp_path / "none") == contents(tmp_path / "one")
    config = run_config(talker(Talker()), LAKE, SLIPPERY)
    assert "repeats" not in config
    assert run_config(talker(Talker()), replace(LAKE, repeats=2), SLIPPERY) == config | {"repeats": 2}


def test_equal_plays_of_a_board_narrow_no_interval(tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=(FIRM,), episodes=40)
    [once] = evaluate("greedy", suite, tmp_path)
    [four] = evaluate("greedy", suite, tmp_path, repeats=4)
    assert [four.summary[name] for name in ("reward", "success")] == [once.summary[name] for name in ("reward", "success")]
    assert four.summary["repeated"]["pass_at"]["4"] == once.summary["success"]
    assert four.summary["repeated"]["run_to_run"] == {"reward": 0.0, "success": 0.0}


def test_an_interrupted_run_with_repeats_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    suite = replace(LAKE, repeats=3)
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole", 5)
    part = run_task(talker(Talker(down=True)), suite, SLIPPERY, tmp_path / "part", 7)
    assert 0 < part.summary["repeated"]["boards"] < 12
    assert load_result(part.folder) == part
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "part", 7)
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
