"""The semantic score: the player that follows the words wins it, and neither habit nor silence nor chance can."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import semantic
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.semantic import (
    CONTROL,
    Habit,
    SemanticScore,
    habit_value,
    semantic_score,
    semantic_scores,
    semantic_table,
)
from msgrpo_hub.evaluation.suites import HARNESS, Suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.games import Game, episode_seed, make_game, stream
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rendering.report import report_page
from msgrpo_hub.rollout import play_episodes
from tests.evaluation.frozen_suites import FOLDER

SNAKE, LAKE = "Snake-Standard-v1", "FrozenLake-NotSlippery-v1"
POISON, BANANAS, EXACTLY = "Snake-PoisonApple-v1", "Snake-PoisonAppleBanana-v1", "FrozenLake-Exactly8-v1"
TASKS = (SNAKE, POISON, BANANAS, f"{SNAKE}:{CONTROL}")
TASKS += (LAKE, EXACTLY, f"{LAKE}:reflected", f"{LAKE}:compass", f"{LAKE}:permuted-actions", f"{LAKE}:grid", f"{LAKE}:{CONTROL}")
SMALL = Suite(name="semantic", tasks=TASKS, episodes=2)


def follow(game: Game, state: Any, rng: np.random.Generator) -> str | None:
    return SCRIPTED["optimal" if is_solvable(game) else "planner"](game, state, rng)


@dataclass(frozen=True)
class Distracted:
    """Follows the words, but does nothing where a sentence is about something else."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        acting = ScriptedPolicy(follow).complete(prompts, rngs)
        pairs = zip(prompts, acting, strict=True)
        return [Completion(text="") if "weather" in prompt.system else reply for prompt, reply in pairs]


PLAYERS: dict[str, Policy] = {
    "follower": ScriptedPolicy(follow),
    "distracted": Distracted(),
    "greedy": ScriptedPolicy(SCRIPTED["greedy"]),
    "habit": Habit(),
    "random": ScriptedPolicy(SCRIPTED["random"]),
    "silent": ScriptedPolicy(SCRIPTED["silent"]),
}


def run_of(name: str, task: str, suite: Suite = SMALL) -> Result:
    """A run that is not stored, with what the score and the report need of its configuration."""
    game, seeds = make_game(task), suite.seeds(task)
    episodes = play_episodes(game, PLAYERS[name], [(seed, 0) for seed in seeds])
    steps, scores = (list(part) for part in zip(*map(judged, episodes), strict=True))
    config = {"player": name, "identity": {"kind": "test"}, "task": task, "task_hash": task, "harness": HARNESS}
    config |= {"prompt_format": "think-action"}
    config |= {"suite": "semantic", "split": suite.split, "episodes": suite.episodes}
    summary = {"complete": True, "failed": 0, **summarise(task, seeds, scores, steps, 0)}
    return Result(folder=Path(name), config=config, summary=summary, episodes=episodes, scores=scores, steps=steps)


@pytest.fixture(scope="module")
def played() -> dict[str, dict[str, Result]]:
    """Player → task → its run."""
    return {name: {task: run_of(name, task) for task in TASKS} for name in PLAYERS}


Played = Mapping[str, Mapping[str, Result]]


def habit(played: Played) -> dict[str, float]:
    return {task: result.summary["reward"]["mean"] for task, result in played["habit"].items()}


def score(played: Played, name: str) -> SemanticScore:
    return semantic_score(played[name], habit(played))


def test_following_the_words_wins_and_habit_silence_and_chance_do_not(played: Played) -> None:
    scores = {name: score(played, name).score for name in played}
    assert scores["follower"] == pytest.approx(1)
    assert max(scores[name] for name in ("habit", "random", "silent")) <= 0
    assert scores["greedy"] < 0.8  # it knows what its moves are called, and takes everything for food


def test_an_irrelevant_sentence_is_to_be_ignored(played: Played) -> None:
    for name in ("follower", "habit", "random", "silent", "greedy"):
        for game in (SNAKE, LAKE):
            told, plain = (played[name][task].summary["reward"]["mean"] for task in (f"{game}:{CONTROL}", game))
            assert told == plain, name
    distracted, follower = (score(played, name) for name in ("distracted", "follower"))
    assert distracted.score < follower.score - 0.1
    assert distracted.worth == follower.worth


def test_tasks_count_by_what_following_the_words_is_worth(played: Played) -> None:
    worth = score(played, "random").worth
    assert set(worth) == {BANANAS, EXACTLY, f"{LAKE}:reflected", f"{LAKE}:compass", f"{LAKE}:permuted-actions"}
    assert all(0.1 <= value <= 1 for value in worth.values())
    assert worth[EXACTLY] == 1
    # Silence does as well as the words where apples are poisoned.
    assert {POISON, SNAKE, f"{LAKE}:grid"}.isdisjoint(worth)


def test_the_score_is_the_sum_over_tasks_divided_by_their_worth(played: Played) -> None:
    runs = played["greedy"]
    found, total = score(played, "greedy"), 0.0
    for task, worth in found.worth.items():
        total += runs[task].summary["normalised"] - (1 - worth)
    assert found.score == pytest.approx(total / sum(found.worth.values()))
    assert found.interval is None  # two episodes


def test_only_players_with_the_whole_suite_get_a_line_the_best_first(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic, "load_suite", lambda _: replace(SMALL, habit=habit(played)))
    results = [result for runs in played.values() for result in runs.values()]
    scores = semantic_scores(results)
    assert (len(scores), scores[0].player.player) == (len(PLAYERS), "follower")
    assert [each.score for each in scores] == sorted([each.score for each in scores], reverse=True)
    lines = semantic_table(results).splitlines()
    assert lines[0].split() == ["player", "semantic", "score"]
    assert lines[2].split()[:2] == ["follower", "1.000"]
    assert f"{EXACTLY} 1.00" in semantic_table(results)
    assert "| follower | 1.000 (no interval) |" in semantic_table(results, lambda result: result.player, as_markdown=True)
    shown = report_page(list(played["follower"].values())).partition('<h2 id="semantic">')[2].partition("</table>")[0]
    assert 'class="name">follower</th><td>1.000 <span class="interval">no interval</span>' in shown.replace("\n", "")
    assert semantic_table(list(played["greedy"].values())[1:]) == semantic_table([]) == ""


def test_the_suite_has_an_irrelevant_sentence_beside_both_of_its_games() -> None:
    for game_id in (SNAKE, LAKE):
        game, told = make_game(game_id), make_game(f"{game_id}:{CONTROL}")
        assert {game_id, told.id} < FROZEN["tasks"].keys()
        state = game.initial_state(stream(1, "initial_state"))
        before, after = (set(build_prompt(each, state).system.splitlines()) for each in (game, told))
        assert [line.strip("- ") for line in after - before] == ["The weather is nice today."]
        assert before < after


def test_the_score_has_an_interval_from_30_episodes_on() -> None:
    suite = replace(SMALL, tasks=(LAKE, f"{LAKE}:compass"), episodes=30)
    runs = {task: run_of("random", task, suite) for task in suite.tasks}
    found = semantic_score(runs, {LAKE: 1.0, f"{LAKE}:compass": 0.0})
    assert found.interval is not None
    assert found.interval.low < found.score < found.interval.high < 0.5


def test_the_interval_never_has_width_0_and_counts_a_board_once() -> None:
    suite = replace(SMALL, tasks=(LAKE, f"{LAKE}:compass"), episodes=30)
    habit = {LAKE: 1.0, f"{LAKE}:compass": 0.0}
    silent = semantic_score({task: run_of("silent", task, suite) for task in suite.tasks}, habit)
    assert silent.interval is not None
    assert silent.interval.low < silent.score < silent.interval.high
    twice = {task: run_of("random", task.replace("reflected", "compass"), suite) for task in (*suite.tasks, f"{LAKE}:reflected")}
    once = semantic_score({task: twice[task] for task in suite.tasks}, habit)
    both = semantic_score(twice, habit | {f"{LAKE}:reflected": 0.0})
    assert both.score == pytest.approx(once.score)
    assert both.interval is not None
    assert once.interval is not None
    assert both.interval.high - both.interval.low == pytest.approx(once.interval.high - once.interval.low, rel=0.05)


FROZEN = tomllib.loads((FOLDER / "semantic.toml").read_text())
LAKES = [task for task in FROZEN["tasks"] if task.startswith("FrozenLake")]


@pytest.mark.parametrize("task", [*LAKES, pytest.param(f"{SNAKE}:permuted-actions", marks=pytest.mark.slow)])
def test_the_frozen_rewards_of_habit_are_those_that_it_gets(task: str) -> None:
    seeds = [episode_seed(task, FROZEN["split"], index) for index in range(FROZEN["episodes"])]
    assert FROZEN["habit"][task] == pytest.approx(habit_value(task, seeds))


def test_the_words_of_the_frozen_suite_are_worth_something_on_both_games() -> None:
    habit = FROZEN["habit"]
    assert habit.keys() == FROZEN["tasks"].keys()
    assert habit[BANANAS] < 1 < habit["Snake-DoubleApple-v1"] / 2
    assert habit[POISON] < habit["Snake-Fire-v1"] < habit[SNAKE] == habit[f"{SNAKE}:{CONTROL}"]
    assert habit[EXACTLY] == habit[f"{LAKE}:compass"] == 0 < habit[LAKE] == 1
