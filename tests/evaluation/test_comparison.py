"""Comparison of two stored players: on the same episodes of the same game, or not at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.paired import compare_paired, compare_tasks, ranks_of
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.suites import Suite

FIRM, SLIPPERY, SNAKE = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Short-v1"
SUITE = Suite(name="mine", tasks=(FIRM, SLIPPERY, SNAKE), episodes=40)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three players on one suite, and others that cannot be compared with them."""
    folder = tmp_path_factory.mktemp("place")
    evaluate(["random", "random-safe", "greedy"], SUITE, folder)
    evaluate("random", replace(SUITE, tasks=("Snake-Solo-v1",), episodes=5), folder / "solo")
    evaluate("greedy", replace(SUITE, tasks=(FIRM,), split="validation"), folder / "validation")
    evaluate("greedy", replace(SUITE, tasks=(FIRM,), episodes=10), folder / "ten")
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    return folder


def results(folder: Path) -> dict[str, Result]:
    return {result.task: result for result in find_results(folder)}


def test_two_folders_are_compared_task_by_task_as_the_statistics_say(place: Path) -> None:
    compared = compare(place / "random", str(place / "greedy"))
    assert [row.task for row in compared] == sorted(SUITE.tasks)
    a, b = results(place / "random"), results(place / "greedy")
    for row in compared:
        first, second = (np.array([score.reward for score in side[row.task].scores]) for side in (a, b))
        assert row.rewards.n == row.success.n == 40
        assert row.rewards.difference == pytest.approx(second.mean() - first.mean())
        assert row.rewards.p <= row.rewards.p_adjusted
    verdicts = {row.task: row.rewards.verdict for row in compared}
    assert verdicts[FIRM] == verdicts[SNAKE] == "better"


def test_a_run_that_lacks_episodes_is_not_compared(place: Path) -> None:
    a, b = results(place / "random"), results(place / "greedy")
    b[FIRM] = replace(b[FIRM], summary=b[FIRM].summary | {"complete": False, "failed": 3})
    with pytest.raises(UserError, match=f"greedy on {FIRM} is not complete: without the 3 episodes that failed .* fair sample"):
        compare([*a.values()], [*b.values()])


def test_returns_that_are_summed_in_another_order_are_equal() -> None:
    turns = np.random.default_rng(0).integers(3, 9, 100)
    first = [sum([1.0, *[-0.1] * turn]) for turn in turns]
    second = [sum([*[-0.1] * turn, 1.0]) for turn in turns]
    assert first != second
    found = compare_paired(first, second, 0, bounds=(-2.0, 1.0))
    assert (found.difference, found.p, found.verdict) == (0.0, 1.0, "inconclusive")
    assert found == compare_paired(first, first, 0, bounds=(-2.0, 1.0))
    assert [str(rank) for rank in ranks_of([np.array(first), np.array(second)])] == ["1–2", "1–2"]


def test_success_over_repeated_boards_has_an_interval_even_if_nearly_all_are_equal() -> None:
    a, b = np.ones(50), np.ones(50)
    b[:3] = 0.5
    [row] = compare_tasks({FIRM: (a, b, a, b)}, 0, {FIRM: (0.0, 1.0)})
    assert row.success.interval is not None
    assert row.success.interval.low < -0.03 < row.success.interval.high <= 1


def test_the_other_way_round_the_signs_and_the_verdicts_are_turned(place: Path) -> None:
    there, back = compare(place / "random", place / "greedy"), compare(place / "greedy", place / "random")
    for one, other in zip(there, back, strict=True):
        assert one.rewards.difference == -other.rewards.difference
        assert {one.rewards.verdict, other.rewards.verdict} in ({"better", "worse"}, {"inconclusive"})


def test_a_player_is_not_better_than_itself(place: Path) -> None:
    for row in compare(place / "random", place / "random"):
        assert (row.rewards.difference, row.rewards.p, row.rewards.verdict) == (0, 1, "inconclusive")


def test_holm_is_over_all_that_is_shown(place: Path) -> None:
    """The same pair on more tasks: what is shown grows, and so does the adjusted p."""
    alone = compare([results(place / "random")[SLIPPERY]], [results(place / "greedy")[SLIPPERY]])[0]
    among = {row.task: row for row in compare(place / "random", place / "greedy")}[SLIPPERY]
    assert among.rewards.p_adjusted >= alone.rewards.p_adjusted
    pairs: dict[str, Any] = {}
    for task in sorted(SUITE.tasks):
        a, b = results(place / "random")[task], results(place / "greedy")[task]
        pairs[task] = (
            *([score.reward for score in side.scores] for side in (a, b)),
            *([score.success for score in side.scores] for side in (a, b)),
        )
    expected = compare_tasks(pairs, 0)
    got = compare(place / "random", place / "greedy")
    assert [row.success.p_adjusted for row in got] == pytest.approx([row.success.p_adjusted for row in expected])


def test_only_episodes_that_both_have_played_are_compared_and_each_with_its_like(place: Path) -> None:
    """One run lacks episodes and holds the rest in another order: pairs are made by seed, not by place."""
    a, b = results(place / "random")[SNAKE], results(place / "greedy")[SNAKE]
    kept = [7, 3, 31, *range(8, 30), 0]
    part = replace(b, episodes=[b.episodes[i] for i in kept], scores=[b.scores[i] for i in kept])
    [row] = compare([a], [part])
    rewards = [[side.scores[i].reward for i in sorted(kept)] for side in (a, b)]
    assert row.rewards.n == len(kept)
    assert row.rewards.difference == pytest.approx(np.mean(rewards[1]) - np.mean(rewards[0]))
    assert row.rewards.correlation == pytest.approx(compare_paired(rewards[0], rewards[1], 0).correlation)
    assert row.rewards.correlation != pytest.approx(compare_paired(rewards[0], rewards[1][::-1], 0).correlation)


def test_a_shorter_run_of_the_same_split_is_compared_on_what_it_shares(place: Path) -> None:
    [row] = compare(place / "random", place / "ten")
    assert (row.task, row.rewards.n) == (FIRM, 10)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("", "greedy", r"two runs of FrozenLake-NotSlippery-v1: .*; expected one; give the folder of one player or one run"),
        ("greedy", "", r"two runs of .*; expected one; give the folder of one player or one run"),
        (
            "random",
            "solo",
            r"no task in common: .*FrozenLake-NotSlippery-v1.* against Snake-Solo-v1; expected both sides on one",
        ),
        ("random", "validation", r"no episode in common \(test and validation episodes\); expected two runs on one split"),
        ("random", "empty", r"no runs under '.*empty': expected a folder that `msgrpo eval --output-dir` has filled"),
        ("none", "random", r"no runs under '.*none'"),
        ("file", "random", r"no runs under '.*file'"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(first: str, second: str, words: str, place: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        compare(place / first, place / second)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("task_hash", "0123456789abcdef"), ("harness", 0)])
def test_results_of_different_rules_are_never_mixed(field: str, value: object, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "greedy", tmp_path / "old")
    for file in (tmp_path / "old").rglob("config.lock.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(
        UserError, match=rf"the rules of .* differ \({field} .* and {value}\): play both with the same version"
    ) as caught:
        compare(place / "random", tmp_path / "old")
    assert "\n" not in str(caught.value)


def test_the_same_folders_give_the_same_figures_each_time(place: Path) -> None:
    assert compare(place / "random", place / "random-safe") == compare(place / "random", place / "random-safe")
