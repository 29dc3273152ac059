"""Doing nothing can score: silence stands in every table, players that do not play have no rank, and some tasks punish both."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from examples.cliff_walking import CliffWalking
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.evaluation.tables import comparison_table, markdown_table, results_table
from msgrpo_hub.games import make_game
from msgrpo_hub.games.solving import random_value, silent_value
from msgrpo_hub.hub.leaderboard import ranked
from msgrpo_hub.players.registry import SCRIPTED, Player
from msgrpo_hub.rendering.report import report_page
from msgrpo_hub.rollout import play_episodes
from tests.evaluation.frozen_suites import FOLDER

POISON, LAKE = "Snake-PoisonApple-v1", "FrozenLake-NotSlippery-v1"
LOST_BY_SILENCE = ("Snake-PoisonAppleBanana-v1", "Snake-DoubleApple-v1")


def suite_of(*tasks: str, episodes: int = 30) -> Suite:
    return Suite(name="mine", tasks=tasks, episodes=episodes)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return evaluate(["silent", "random-safe", "greedy"], suite_of(POISON, episodes=8), tmp_path_factory.mktemp("poisoned"))


# ---- the player


@pytest.mark.parametrize("prompt_format", PROMPT_FORMATS.values(), ids=lambda prompt_format: prompt_format.name)
def test_silent_never_gives_a_readable_action(prompt_format: PromptFormat) -> None:
    for task in (LAKE, f"{LAKE}:compass", "Snake-Solo-v1"):
        [episode] = play_episodes(make_game(task), ScriptedPolicy(SCRIPTED["silent"]), [(1, 0)], prompt_format=prompt_format)
        assert {(step.action, step.status) for step in episode.steps} == {(None, "unreadable")}
        assert len(episode.steps) == make_game(task).horizon


def test_the_value_of_silence_is_exact_where_a_game_is_solved() -> None:
    assert silent_value(CliffWalking(), 0) == -20 > random_value(CliffWalking(), 0)
    lake = make_game("FrozenLake-Slippery-v1")
    assert [silent_value(lake, seed) for seed in range(3)] == [0, 0, 0]  # type: ignore[arg-type]


def test_a_comparison_says_that_a_player_does_not_play(poisoned: list[Result]) -> None:
    by_name = {result.player: result for result in poisoned}
    [row] = compare([by_name["random-safe"]], [by_name["silent"]])
    assert row.not_playing == ("silent",)
    assert f"{POISON}: silent does not play, under half of its replies parsed" in comparison_table([row])
    [other] = compare([by_name["random-safe"]], [by_name["greedy"]])
    assert other.not_playing == ()
    assert "does not play" not in comparison_table([other])


# ---- where it stands


def test_a_player_that_never_acts_has_the_best_reward_on_poison_and_no_rank(poisoned: list[Result]) -> None:
    """The trap: its 0.000 is the optimum there."""
    rewards = {result.player: result.summary["reward"]["mean"] for result in poisoned}
    assert max(rewards, key=lambda player: rewards[player]) == "silent"
    assert [result.player for result in ranked(poisoned)] == ["random-safe", "greedy", "silent"]
    for text in (results_table(poisoned), markdown_table(poisoned, lambda result: result.player)):
        cells = [line.replace("|", " ").split() for line in text.splitlines()]
        rows = [row for row in cells if row and row[0] in rewards]
        assert [row[0] for row in rows] == ["random-safe", "greedy", "silent"]
        assert ["PLAY" in row for row in rows] == [False, False, True]
        assert rows[-1][1] == "–"  # its rank


def test_the_report_marks_a_player_that_does_not_play_and_lists_it_last(poisoned: list[Result]) -> None:
    table = report_page(poisoned).partition("<tbody>")[2].partition("</tbody>")[0]
    names = [part.partition("<")[0].strip() for part in table.split('class="name">')[1:]]
    assert names == ["random-safe", "greedy", "silent"]
    assert table.count("does not play") == 1
    assert "does not play" in table.partition(">silent")[2]


@pytest.mark.parametrize("task", [POISON, LAKE])
def test_every_table_tells_what_silence_is_worth_on_its_episodes(task: str, tmp_path: Path) -> None:
    results = evaluate("random", suite_of(task, episodes=4), tmp_path)
    title = results_table(results).splitlines()[0]
    assert "silent 0.00" in title
    assert "silent 0.00" in markdown_table(results, lambda result: result.player)
    assert "silent 0.000" in report_page(results)


@dataclass(frozen=True)
class Mumbling:
    """Acts on some of its turns."""

    every: int

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        acting = ScriptedPolicy(SCRIPTED["random-safe"]).complete(prompts, rngs)
        pairs = zip(prompts, acting, strict=True)
        return [reply if prompt.state.turn % self.every == 0 else Completion(text="hm") for prompt, reply in pairs]


@pytest.mark.parametrize(("every", "expected"), [(1, True), (2, True), (3, False)])
def test_a_player_plays_if_half_of_its_replies_are_parsed(every: int, expected: bool, tmp_path: Path) -> None:
    player = Player(name="mumbling", policy=Mumbling(every), identity={"kind": "test"}, folder="mumbling")
    result = run_task(player, suite_of("Snake-Solo-v1", episodes=3), "Snake-Solo-v1", tmp_path)
    whole = [len(episode.steps) == 20 for episode in result.episodes]
    assert any(whole)
    assert plays(result.summary) == expected


def test_truncated_replies_are_not_parsed_either(poisoned: list[Result]) -> None:
    silent = poisoned[0].summary
    assert not plays(silent | {"unreadable_rate": 0.3, "truncated_rate": 0.3})
    assert plays(silent | {"unreadable_rate": 0.2, "truncated_rate": 0.3})


def test_normalised_is_still_0_for_random_play_and_1_for_the_reference(poisoned: list[Result]) -> None:
    for result in poisoned:
        ends, summary = result.summary["references"], result.summary
        assert list(ends) == ["silent", "random", "planner"]
        expected = (summary["reward"]["mean"] - ends["random"]) / (ends["planner"] - ends["random"])
        assert summary["normalised"] == pytest.approx(expected)


# ---- tasks on which silence loses


@pytest.mark.parametrize("task", LOST_BY_SILENCE)
def test_silence_loses_where_something_is_worth_eating(task: str, tmp_path: Path) -> None:
    [result] = evaluate("silent", suite_of(task, episodes=5), tmp_path)
    assert result.summary["references"]["planner"] > result.summary["reward"]["mean"] + 2 == 2
    assert result.summary["normalised"] < 0.6
    for suite in ("standard", "semantic"):
        assert {task, POISON} < tomllib.loads((FOLDER / f"{suite}.toml").read_text())["tasks"].keys()
