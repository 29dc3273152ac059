"""Repeats: K plays of each board with their own random streams, in runs, verification, comparison, tables and the report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, find_results, load_result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import pass_at_k
from msgrpo_hub.evaluation.tables import repeat_figures, repeat_table, results_table
from msgrpo_hub.evaluation.verify import checked_run
from msgrpo_hub.players.scripted import choose_optimal
from msgrpo_hub.rendering.report import report_page
from tests.evaluation.played import FIRM, LAKE, SLIPPERY, Talker, contents, talker
from tests.evaluation.tampering import copied, found, rewrite_json

THIRTY = Suite(name="mine", tasks=(SLIPPERY,), episodes=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repeated")
    evaluate(["random", "optimal"], THIRTY, folder, repeats=3)
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Result:
    return copied(place / "random", tmp_path, SLIPPERY)


def test_pass_at_k_is_the_share_of_choices_of_k_plays_with_a_success() -> None:
    plays = [True, True, False, False, False]
    for k in range(1, 6):
        choices = list(itertools.combinations(plays, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert [pass_at_k(4, successes, 2) for successes in (0, 1, 3, 4)] == [0, 0.5, 1, 1]


@dataclass
class Planned:
    """Wins the planned episodes, in the order of the run; does nothing in the others."""

    wins: Sequence[bool]
    rngs: list[Any] = field(default_factory=list)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.rngs += [rng for rng in rngs if not any(rng is known for known in self.rngs)]
        of_run = [next(k for k, known in enumerate(self.rngs) if known is rng) for rng in rngs]
        moves = [f"<action>{choose_optimal(p.game, p.state, np.random.default_rng(0))}</action>" for p in prompts]
        return [Completion(text=move if self.wins[k] else "") for move, k in zip(moves, of_run, strict=True)]


def test_pass_at_k_worked_by_hand_over_three_boards(tmp_path: Path) -> None:
    wins = [[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    suite = Suite(name="mine", tasks=(FIRM,), episodes=3, repeats=4)
    result = run_task(talker(Planned([bool(win) for board in wins for win in board])), suite, FIRM, tmp_path)
    figures = result.summary["repeated"]
    means = {k: figure["mean"] for k, figure in figures["pass_at"].items()}
    assert means == {"1": pytest.approx(5 / 12), "2": pytest.approx((0 + 1 / 2 + 1) / 3), "4": pytest.approx(2 / 3)}
    assert figures["runs"]["success"] == [pytest.approx(number / 3) for number in (1, 1, 2, 1)]
    assert figures["run_to_run"]["success"] == pytest.approx(np.sqrt(0.25) / 3)  # s² of 0, 0, 1, 0 is 1/4


def test_members_have_their_own_streams_and_the_first_is_the_run_without_repeats(tmp_path: Path) -> None:
    states: list[str] = []

    class Watched(Talker):
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            first = [rng for prompt, rng in zip(prompts, rngs, strict=True) if not prompt.state.turn]
            states.extend(str(rng.bit_generator.state) for rng in first)
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


def test_equal_plays_of_a_board_narrow_no_interval(tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=(FIRM,), episodes=40)
    [once] = evaluate("greedy", suite, tmp_path)
    [four] = evaluate("greedy", suite, tmp_path, repeats=4)
    assert [four.summary[name] for name in ("reward", "success")] == [once.summary[name] for name in ("reward", "success")]
    assert four.summary["repeated"]["pass_at"]["4"] == once.summary["success"]
    assert four.summary["repeated"]["run_to_run"] == {"reward": 0.0, "success": 0.0}


def test_an_interrupted_run_with_repeats_continues_to_the_same_bytes(tmp_path: Path) -> None:
    suite = replace(LAKE, repeats=3)
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole", 5)
    part = run_task(talker(Talker(down=True)), suite, SLIPPERY, tmp_path / "part", 7)
    assert 0 < part.summary["repeated"]["boards"] < 12
    assert load_result(part.folder) == part
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "part", 7)
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_run_with_repeats_verifies_also_from_an_untrusted_source(run: Result) -> None:
    assert found(run) == ""
    assert checked_run(run.folder) == run
    assert len(run.episodes) == 90


@pytest.mark.parametrize("repeats", [1, "3", True, 3.0, 334, 10**9])
def test_an_untrusted_number_of_repeats_is_checked_first(run: Result, repeats: Any) -> None:
    rewrite_json(run, "config.lock.json", lambda config: config.update(repeats=repeats))
    with pytest.raises(UserError, match=r"repeats is .*, expected|more than 10,000 episodes"):
        checked_run(run.folder)


def test_a_comparison_has_one_pair_per_board_also_with_a_run_of_fewer_plays(place: Path, tmp_path: Path) -> None:
    [row] = compare(place / "random", place / "optimal")
    first, second = (find_results(place / name)[0] for name in ("random", "optimal"))
    differences = [b.reward - a.reward for a, b in zip(first.scores, second.scores, strict=True)]
    assert (row.success.n, row.rewards.difference) == (30, pytest.approx(np.mean(differences)))
    once = evaluate("random", THIRTY, tmp_path)
    [row] = compare(once, place / "optimal")
    of_first_plays = [b.reward - a.reward for a, b in zip(once[0].scores, second.scores[::3], strict=True)]
    assert (row.success.n, row.rewards.difference) == (30, pytest.approx(np.mean(of_first_plays)))


def test_tables_and_the_report_say_how_often_each_board_was_played(place: Path) -> None:
    results = find_results(place)
    assert "30 test episodes, each 3 times, on " in results_table(results)
    title, head, _, *rows = repeat_table(results).splitlines()
    assert title.startswith(SLIPPERY)
    assert head.split() == ["player", "run", "to", "run", *(f"pass@{k}" for k in (1, 2, 3))]
    assert [row.split()[0] for row in rows[:2]] == ["optimal", "random"]
    assert repeat_table([]) == ""
    page = report_page(results)
    for text in ("30 test episodes, each 3 times, on ", '<th scope="col">pass@3</th>', repeat_figures(results[0])["run to run"]):
        assert text in page
