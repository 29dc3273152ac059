"""The semantic score: a player that follows the words has the best one; habit, silence and random play score at most 0."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.freeze import Habit, habit_value
from msgrpo_hub.agent.policy import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import semantic
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.semantic import CONTROL, semantic_score, semantic_scores, semantic_table
from msgrpo_hub.evaluation.suites import HARNESS, Suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rendering.report import report_page
from msgrpo_hub.rollout import play_episodes
from tests.evaluation.played import FIRM as LAKE
from tests.evaluation.played import FOLDER

SNAKE, COMPASS, EXACTLY = "Snake-Standard-v1", f"{LAKE}:compass", "FrozenLake-Exactly8-v1"
POISON, BANANAS = "Snake-PoisonApple-v1", "Snake-PoisonAppleBanana-v1"
TASKS = (SNAKE, POISON, BANANAS, f"{SNAKE}:{CONTROL}")
TASKS += (LAKE, EXACTLY, f"{LAKE}:reflected", COMPASS, f"{LAKE}:permuted-actions", f"{LAKE}:grid", f"{LAKE}:{CONTROL}")
SMALL = Suite(name="semantic", tasks=TASKS, episodes=2)
FROZEN = tomllib.loads((FOLDER / "semantic.toml").read_text())


def follow(game: Game, state: Any, rng: np.random.Generator) -> str | None:
    return SCRIPTED["optimal" if is_solvable(game) else "planner"](game, state, rng)


@dataclass(frozen=True)
class Distracted:
    """Follows the words, but does nothing if a sentence is about the weather."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        pairs = zip(prompts, ScriptedPolicy(follow).complete(prompts, rngs), strict=True)
        return [Completion(text="") if "weather" in prompt.system else reply for prompt, reply in pairs]


PLAYERS: dict[str, Policy] = {
    "follower": ScriptedPolicy(follow),
    "distracted": Distracted(),
    "habit": Habit(),
    **{name: ScriptedPolicy(SCRIPTED[name]) for name in ("greedy", "random", "silent")},
}


def run_of(name: str, task: str, suite: Suite = SMALL) -> Result:
    """A run that is not stored, with the parts of a configuration that the score and the report need."""
    game, seeds = make_game(task), suite.seeds(task)
    episodes = play_episodes(game, PLAYERS[name], [(seed, 0) for seed in seeds])
    steps, scores = (list(part) for part in zip(*map(judged, episodes), strict=True))
    config = {"player": name, "identity": {"kind": "test"}, "task": task, "task_hash": task, "harness": HARNESS}
    config |= {"prompt_format": "think-action", "suite": "semantic", "split": suite.split, "episodes": suite.episodes}
    summary = {"complete": True, "failed": 0, **summarise(task, seeds, scores, steps, 0)}
    return Result(folder=Path(name), config=config, summary=summary, episodes=episodes, scores=scores, steps=steps)


Played = Mapping[str, Mapping[str, Result]]


@pytest.fixture(scope="module")
def played() -> Played:
    """Player → task → its run."""
    return {name: {task: run_of(name, task) for task in TASKS} for name in PLAYERS}


@pytest.fixture(scope="module")
def habit(played: Played) -> dict[str, float]:
    return {task: result.summary["reward"]["mean"] for task, result in played["habit"].items()}


def test_following_the_words_scores_1_and_habit_silence_and_chance_at_most_0(played: Played, habit: dict[str, float]) -> None:
    scores = {name: semantic_score(runs, habit) for name, runs in played.items()}
    means = {name: score.figure["mean"] for name, score in scores.items()}
    assert means["follower"] == pytest.approx(1)
    assert max(means[name] for name in ("habit", "random", "silent")) <= 0
    assert means["greedy"] < 0.8  # it knows the names of its moves, and takes everything for food
    assert means["distracted"] < means["follower"] - 0.1
    for name in ("follower", "habit", "random", "silent", "greedy"):
        for game in (SNAKE, LAKE):
            told, plain = (played[name][task].summary["reward"]["mean"] for task in (f"{game}:{CONTROL}", game))
            assert told == plain, name
    worth = scores["random"].worth
    assert set(worth) == {BANANAS, EXACTLY, f"{LAKE}:reflected", COMPASS, f"{LAKE}:permuted-actions"}
    assert all(0.1 <= value <= 1 for value in worth.values())
    assert worth[EXACTLY] == 1
    greedy = scores["greedy"]
    gains = [played["greedy"][task].summary["normalised"] - (1 - value) for task, value in greedy.worth.items()]
    assert means["greedy"] == pytest.approx(sum(gains) / sum(greedy.worth.values()))
    assert greedy.figure["low"] is None  # two episodes


def test_only_players_with_the_whole_suite_get_a_line_the_best_first(
    played: Played, habit: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "load_suite", lambda _: replace(SMALL, habit=habit))
    results = [result for runs in played.values() for result in runs.values()]
    scores = semantic_scores(results)
    assert (len(scores), scores[0].player.player) == (len(PLAYERS), "follower")
    means = [each.figure["mean"] for each in scores]
    assert means == sorted(means, reverse=True)
    lines = semantic_table(results).splitlines()
    assert lines[0].split() == ["player", "semantic", "score"]
    assert lines[2].split()[:2] == ["follower", "1.000"]
    assert f"{EXACTLY} 1.00" in semantic_table(results)
    assert "| follower | 1.000 (no interval) |" in semantic_table(results, lambda result: result.player, "markdown")
    shown = report_page(list(played["follower"].values())).partition('<h2 id="semantic">')[2].partition("</table>")[0]
    assert 'class="name">follower</th><td>1.000 <span class="interval">no interval</span>' in shown.replace("\n", "")
    assert semantic_table(list(played["greedy"].values())[1:]) == semantic_table([]) == ""


def test_the_interval_over_30_boards_never_has_width_0_and_counts_a_board_once() -> None:
    suite = replace(SMALL, tasks=(LAKE, COMPASS), episodes=30)
    habit = {LAKE: 1.0, COMPASS: 0.0, f"{LAKE}:reflected": 0.0}
    random = {task: run_of("random", task, suite) for task in suite.tasks}
    both = random | {f"{LAKE}:reflected": random[COMPASS]}
    silent = {task: run_of("silent", task, suite) for task in suite.tasks}
    widths = []
    for runs in (random, both, silent):
        found = semantic_score(runs, habit).figure
        assert found["low"] < found["mean"] < found["high"]
        widths.append(found["high"] - found["low"])
    once, twice = (semantic_score(runs, habit).figure for runs in (random, both))
    assert once["high"] < 0.5
    assert twice["mean"] == pytest.approx(once["mean"])
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


LAKES = [task for task in FROZEN["tasks"] if task.startswith("FrozenLake")]


@pytest.mark.parametrize("task", [*LAKES, pytest.param(f"{SNAKE}:permuted-actions", marks=pytest.mark.slow)])
def test_the_frozen_rewards_of_habit_are_its_rewards(task: str) -> None:
    seeds = [episode_seed(task, FROZEN["split"], index) for index in range(FROZEN["episodes"])]
    assert FROZEN["habit"][task] == pytest.approx(habit_value(task, seeds))


def test_following_the_words_of_the_frozen_suite_is_worth_something_in_both_games() -> None:
    habit = FROZEN["habit"]
    assert habit.keys() == FROZEN["tasks"].keys()
    assert habit[BANANAS] < 1 < habit["Snake-DoubleApple-v1"] / 2
    assert habit[POISON] < habit["Snake-Fire-v1"] < habit[SNAKE] == habit[f"{SNAKE}:{CONTROL}"]
    assert habit[EXACTLY] == habit[COMPASS] == 0 < habit[LAKE] == 1
