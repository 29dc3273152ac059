"""The semantic score: whether a player follows the words of the suite `semantic`, or a habit, or does nothing."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import reply_with
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.aggregate import Floats, aggregate, normalised
from msgrpo_hub.evaluation.results import Result, player_key, run_hash
from msgrpo_hub.evaluation.statistics import Interval
from msgrpo_hub.evaluation.suites import BY_SEED, load_suite, repeats_of
from msgrpo_hub.evaluation.summary import REFERENCE, as_figure, best_reference
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.variants import unchanged
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes

SUITE = "semantic"
"""The suite that the score is about."""

CONTROL = "irrelevant-sentence"
"""The variant with a sentence that changes nothing."""

SMALLEST_WORTH = 0.1
"""Tasks on which following the words is worth less than this do not count: they measure skill."""


@dataclass(frozen=True, kw_only=True)
class SemanticScore:
    """The semantic score of a player."""

    player: Result
    """One of its runs, for its name."""
    score: float
    interval: Interval | None
    """95 %, over episodes; None with fewer than 30 per task."""
    worth: Mapping[str, float]
    """Task that counts → 1 − b_t, what following its words is worth."""

    @property
    def figure(self) -> dict[str, Any]:
        """The score as tables show it."""
        return {"mean": self.score, **as_figure(self.interval)}


def semantic_score(runs: Mapping[str, Result], habit: Mapping[str, float]) -> SemanticScore:
    """How much of what following the words is worth a player gets.

        score = [Σ_t (x_t − b_t) + Σ_c (x_c − u_c)] / Σ_t (1 − b_t)

    x is a mean normalised reward: 0 is random play, 1 the reference, which knows the rules of the task and follows them. b_t is
    the best that can be had without reading: the largest of random play (0), silence, and habit. Habit gives the answers of the
    unchanged game in the same state (`Habit`). The first sum is over the tasks with 1 − b_t ≥ 0.1. Tasks c have an irrelevant
    sentence, and u_c is what the same player gets without it: following the words means to play as before.

    A player that always follows the words scores 1. Habit, silence and random play score at most 0 in expectation, since each
    of them gets at most b_t on every task and plays the same with and without an irrelevant sentence.

    Args:
        runs: task → the player's complete run, for all tasks of the suite.
        habit: task → the mean reward of `Habit` on the same episodes.
    """
    worth = {task: 1 - _without_reading(result, habit[task]) for task, result in runs.items()}
    counted = {task: value for task, value in worth.items() if value >= SMALLEST_WORTH}
    samples = {task: _normalised(runs[task]) - (1 - value) for task, value in counted.items()}
    for task in runs:
        game_id, _, variant = task.partition(":")
        if variant == CONTROL:
            samples[task] = _normalised(runs[task]) - _normalised(runs[game_id])
    seed = zlib.crc32("".join(run_hash(result.config) for result in runs.values()).encode())
    means, scale = aggregate(samples, seed), len(samples) / sum(counted.values())
    ends = means.mean_interval
    interval = None if ends is None else replace(ends, low=scale * ends.low, high=scale * ends.high)
    return SemanticScore(player=next(iter(runs.values())), score=scale * means.mean, interval=interval, worth=counted)


def semantic_scores(results: Sequence[Result]) -> list[SemanticScore]:
    """The score of every player that has played the whole suite, the best first."""
    players: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        if result.config["suite"] == SUITE and result.config["harness"] not in BY_SEED and result.complete:
            players.setdefault((player_key(result), repeats_of(result.config)), {})[result.task] = result
    if not players:
        return []
    suite = load_suite(SUITE)
    scores = [semantic_score(runs, suite.habit) for runs in players.values() if runs.keys() == set(suite.tasks)]
    return sorted(scores, key=lambda score: -score.score)


def _normalised(result: Result) -> Floats:
    """Normalised rewards, the mean of each board where boards are repeated: shape [boards]."""
    references = result.summary["references"]
    best = best_reference(references)
    assert best is not None  # the suite has only lakes and snakes
    rewards = normalised([score.reward for score in result.scores], references["random"], best)
    means: Floats = rewards.reshape(-1, repeats_of(result.config)).mean(axis=1)
    return means


def _without_reading(result: Result, habit: float) -> float:
    """b_t: the best of random play, silence and habit on the episodes of a run, normalised."""
    references = result.summary["references"]
    best = best_reference(references)
    assert best is not None
    values: list[float] = normalised([references["silent"], habit], references["random"], best).tolist()
    return max(0.0, *values)


# ---- habit


@dataclass(frozen=True)
class Habit:
    """Plays the unchanged game whatever the words say.

    It gives the answer that the reference player gives in the same state of the unchanged game, in the words of that game:
    everything on the board is worth an apple, the goal may be reached on any turn, and actions have their usual names.
    """

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            game = unchanged(base_game(prompt.game))
            choose = SCRIPTED["optimal" if is_solvable(game) else REFERENCE]
            replies.append(Completion(text=reply_with(choose(game, prompt.state, rng), prompt)))
        return replies


def habit_value(task: str, seeds: Sequence[int]) -> float:
    """The mean reward of `Habit` on some episodes."""
    episodes = play_episodes(make_game(task), Habit(), [(seed, 0) for seed in seeds])
    return float(np.mean([episode.reward for episode in episodes]))


def freeze_habit(path: Path) -> None:
    """Plays `Habit` on a suite and writes its mean rewards into the table `[habit]`; this takes minutes."""
    suite, (text, _, _) = load_suite(str(path)), path.read_text(encoding="utf-8").partition("\n# Task → the mean reward of habit")
    rows = [f'"{task}" = {habit_value(task, suite.seeds(task))}\n' for task in suite.tasks]
    head = "\n# Task → the mean reward of habit on these episodes (see msgrpo_hub/evaluation/semantic.py).\n[habit]\n"
    path.write_text(text + head + "".join(rows), encoding="utf-8")
