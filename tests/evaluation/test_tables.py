"""Results as text: every player in its block, every figure with its interval, every warning in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import RANKS, aligned, comparison_table, results_table, same_episodes, short, with_interval
from msgrpo_hub.players.registry import Player

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Short-v1"
SUITE = Suite(name="mine", tasks=(SNAKE, LAKE), episodes=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    evaluate(["random", "greedy"], SUITE, folder)
    return folder


def blocks(results: Sequence[Result]) -> list[list[str]]:
    return [block.splitlines() for block in results_table(results).removesuffix(f"\n\n{RANKS}").split("\n\n")]


def test_a_block_per_task_and_the_best_player_first(place: Path) -> None:
    lake, snake = blocks(find_results(place))
    assert re.match(rf"{LAKE}   30 test episodes on 2\d boards   exact: silent 0\.00, random 0\.0", lake[0])
    assert lake[0].endswith("optimal 1.00")
    assert snake[0].startswith(f"{SNAKE}   30 test episodes on 30 boards   played on the same seeds: random ")
    for block in (lake, snake):
        assert [line.split()[0] for line in block[3:]] == ["greedy", "random"]
        assert set(block[2]) == {"─"}
        assert len({len(line) for line in block[1:]}) == 1
    assert "luck-adjusted" in lake[1]
    assert "luck-adjusted" not in snake[1]
    assert "1.000 [0.886, 1.000]  1.000 [0.886, 1.000]   1.00" in lake[3]
    assert re.search(r"100% of \d+ ", lake[3])


def test_a_run_reads_the_same_fresh_and_from_its_files(tmp_path: Path) -> None:
    played = results_table(evaluate(["random", "greedy"], replace(SUITE, episodes=4), tmp_path))
    assert results_table(find_results(tmp_path)) == played
    assert results_table(evaluate(["greedy", "random"], replace(SUITE, episodes=4), tmp_path)) == played


def test_tasks_that_a_player_does_not_play_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(["optimal", "random"], replace(SUITE, episodes=2), tmp_path)
    assert [line for line in capsys.readouterr().err.splitlines() if "left out" in line] == [
        f"optimal does not play {SNAKE}: left out"
    ]


def test_figures_of_few_episodes_have_no_interval(tmp_path: Path) -> None:
    text = results_table(evaluate("greedy", replace(SUITE, episodes=29), tmp_path))
    assert text.count("(no interval)") == 1  # the reward of Snake; what is 0 or 1 has an interval always
    assert "[0.883, 1.000]" in text


def test_runs_on_other_episodes_stand_in_a_block_of_their_own(place: Path, tmp_path: Path) -> None:
    """Seen elsewhere: results on different episodes in one table, under one heading."""
    others = evaluate("random-safe", replace(SUITE, tasks=(LAKE,), episodes=40), tmp_path)
    others += evaluate("random-safe", replace(SUITE, tasks=(LAKE,), split="validation"), tmp_path)
    found = blocks([*find_results(place), *others])
    assert [block[0].partition(" on ")[0] for block in found[:3]] == [
        f"{LAKE}   30 test episodes",
        f"{LAKE}   40 test episodes",
        f"{LAKE}   30 validation episodes",
    ]
    assert [len(block) for block in found] == [5, 4, 4, 5]


class Down:
    """A server that answers nothing, or only what begins with an odd number of holes."""

    def __init__(self, wholly: bool) -> None:
        self.wholly = wholly

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        fails = [self.wholly or len(prompt.state.holes) % 2 for prompt in prompts]
        return [Completion(text="?", error="HTTP 500" if failed else "") for failed in fails]


@pytest.mark.parametrize("wholly", [True, False])
def test_a_run_that_is_not_complete_says_so_and_spoils_no_other_line(wholly: bool, place: Path, tmp_path: Path) -> None:
    player = Player(name="server", policy=Down(wholly), identity={"kind": "test"}, folder="server")
    failed = run_task(player, SUITE, LAKE, tmp_path)
    whole = [result for result in find_results(place) if result.task == LAKE]
    for order in ([failed, *whole], [*whole, failed]):
        [block] = blocks(order)
        assert block[0].endswith("optimal 1.00")
        lines = {line.split()[0]: line for line in block[3:]}
        assert next(iter(lines)) == "greedy"
        assert not wholly or list(lines)[2] == "server"
        assert lines["server"].endswith(f"NOT COMPLETE, {failed.summary['failed']} failed")
        assert (lines["server"].count("– ") > 1) == wholly  # one is its rank
        assert "NOT COMPLETE" not in lines["greedy"] + lines["random"]


def test_the_same_episodes_under_another_suite_count_once_and_the_complete_run_counts(place: Path, tmp_path: Path) -> None:
    evaluate(["random", "greedy"], replace(SUITE, name="again", tasks=(LAKE,)), tmp_path)
    here = [result for result in find_results(place) if result.task == LAKE]
    again = [replace(result, summary=result.summary | {"complete": False, "failed": 1}) for result in find_results(tmp_path)]
    for results in ([*here, *again], [*again, *here]):
        [group] = same_episodes(results)
        assert sorted(result.player for result in group) == ["greedy", "random"]
        assert all(result.complete for result in group)


@pytest.mark.parametrize(("boards", "plays"), [(1, 5), (3, 2), (2, 1)])
def test_luck_on_a_few_boards_is_not_called_above_the_optimum(boards: int, plays: int, tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=("FrozenLake-Gymnasium-8x8-v1",), episodes=boards, repeats=plays)
    [result] = evaluate("optimal", suite, tmp_path)
    assert result.summary["reward"]["mean"] == 1.0 > result.summary["references"]["optimal"]
    assert not result.summary["above_optimum"]


def test_a_mean_above_the_exact_optimum_is_called_by_its_name(place: Path) -> None:
    [result] = [r for r in find_results(place) if r.task == LAKE and r.player == "random"]
    assert "ABOVE THE OPTIMUM" not in results_table([result])
    assert "ABOVE THE OPTIMUM" in results_table([replace(result, summary=result.summary | {"above_optimum": True})])


def test_a_comparison_names_its_direction_its_power_and_its_verdict(place: Path) -> None:
    lines = comparison_table(compare(place / "random", place / "greedy")).splitlines()
    assert lines[0] == "second minus first, on the same seeds; 3 hypotheses"
    head = ["task", "score", "difference", "p", "(Holm)", "correlation", "detectable", "n", "verdict"]
    assert lines[1].split() == head
    assert [line.split()[:3] for line in lines[3:6]] == [
        [LAKE, "reward", "="],
        [SNAKE, "reward", lines[4].split()[2]],
        [SNAKE, "success", lines[5].split()[2]],
    ]
    assert lines[-3].startswith("detectable: the smallest difference")
    assert lines[3].endswith("  30   better")
    assert "+0.967 [" in lines[3]  # on one of these lakes random play reaches the goal
    assert " < 0.0001 " in lines[3]
    same = comparison_table(compare(place / "random", place / "random")).splitlines()
    assert all("+0.000 [" in line and line.endswith("inconclusive") for line in same[3:6])


def test_a_figure_that_does_not_exist_is_a_dash() -> None:
    assert with_interval(None) == "–"


@pytest.mark.parametrize("name", ["short", "x" * 36, "some-organisation/a-model-with-a-long-name+another/adapter-of-it"])
def test_a_long_name_keeps_both_its_ends_and_fits(name: str) -> None:
    assert len(short(name)) == min(len(name), 36)
    assert short(name)[:18] == name[:18]
    assert short(name)[-17:] == name[-17:]


def test_columns_stand_under_their_heads() -> None:
    table = aligned([["player", "n"], ["a", "1"], ["bcdefghij", "1000"]])
    assert table == "player        n\n───────────────\na             1\nbcdefghij  1000"


def test_no_results_are_no_table() -> None:
    assert results_table([]) == ""
