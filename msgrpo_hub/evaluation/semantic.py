"""The semantic score: whether a player follows the words of the suite `semantic`, or a habit, or does nothing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import reply_with
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.paired import Floats
from msgrpo_hub.evaluation.results import Result, player_key, run_hash
from msgrpo_hub.evaluation.statistics import BETTING, Interval, Range, mean_interval
from msgrpo_hub.evaluation.suites import load_suite, repeats_of
from msgrpo_hub.evaluation.summary import REFERENCE, as_figure, best_reference
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.game import is_solvable, return_range
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
    gains = _gains(runs, counted)
    seed = zlib.crc32("".join(run_hash(result.config) for result in runs.values()).encode())
    sums = {game_id: (gain.mean(), mean_interval(gain, seed, bounds=bounds)) for game_id, (gain, bounds) in gains.items()}
    total, scale = float(sum(mean for mean, _ in sums.values())), sum(counted.values())
    interval = interval_of_sum([(mean, interval) for mean, interval in sums.values()], scale)
    return SemanticScore(player=next(iter(runs.values())), score=total / scale, interval=interval, worth=counted)


def _gains(runs: Mapping[str, Result], worth: Mapping[str, float]) -> dict[str, tuple[Floats, Range]]:
    """Game → the summands of the numerator, added up for each of its boards, and the range of their sum.

    All variants of a game are played on the same boards, so that their sum counts as one value per board.
    """
    parts: dict[str, list[tuple[Floats, Floats]]] = {}
    for task, result in runs.items():
        game_id, _, variant = task.partition(":")
        rewards, ends = _normalised(result), _normalised_range(result)
        if task in worth:
            parts.setdefault(game_id, []).append((rewards - (1 - worth[task]), ends - (1 - worth[task])))
        if variant == CONTROL:
            parts.setdefault(game_id, []).append((rewards - _normalised(runs[game_id]), ends - ends[::-1]))
    sums = {game_id: [np.sum(part, axis=0) for part in zip(*of_game, strict=True)] for game_id, of_game in parts.items()}
    return {game_id: (gain, (float(ends[0]), float(ends[1]))) for game_id, (gain, ends) in sums.items()}


def interval_of_sum(parts: Sequence[tuple[float, Interval | None]], scale: float) -> Interval | None:
    """The interval of a sum of independent means, divided by a number, from the means and their intervals.

    The distances of the ends from the means add up as standard errors do (Zou and Donner 2008, Statistics in Medicine 27).

    >>> interval_of_sum([(1.0, Interval(0.7, 1.3)), (2.0, Interval(1.6, 2.4))], 1.0)
    Interval(low=2.5, high=3.5, level=0.95, rule='wilson')
    """
    known = [(mean, interval) for mean, interval in parts if interval is not None]
    if len(known) < len(parts):
        return None
    total = sum(mean for mean, _ in known)
    below = math.hypot(*(mean - interval.low for mean, interval in known))
    above = math.hypot(*(interval.high - mean for mean, interval in known))
    rules = [interval.rule for _, interval in known]
    rule = BETTING if BETTING in rules else rules[0]
    return Interval((total - below) / scale, (total + above) / scale, rule=rule)


def semantic_scores(results: Sequence[Result]) -> list[SemanticScore]:
    """The score of every player that has played the whole suite, the best first."""
    players: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        if result.config["suite"] == SUITE and result.complete:
            players.setdefault((player_key(result), repeats_of(result.config)), {})[result.task] = result
    if not players:
        return []
    suite = load_suite(SUITE)
    scores = [semantic_score(runs, suite.habit) for runs in players.values() if runs.keys() == set(suite.tasks)]
    return sorted(scores, key=lambda score: -score.score)


def normalised(rewards: Sequence[float] | Floats, random: float, reference: float) -> Floats:
    """(reward − random) / (reference − random): 0 is random play, 1 the reference. Never clipped.

    Args:
        rewards: one per episode, shape [n].
        random: value of random play on the task.
        reference: value of the reference player, or of optimal play.

    Raises:
        ValueError: random play scores as much as the reference, so the task cannot tell players apart.

    >>> normalised([0, 1, 3, -1], random=0, reference=2).tolist()
    [0.0, 0.5, 1.5, -0.5]
    """
    if reference == random:
        raise ValueError(f"cannot normalise: random play and the reference both score {reference}")
    scores: Floats = (np.asarray(rewards, dtype=np.float64) - random) / (reference - random)
    return scores


def _normalised(result: Result) -> Floats:
    """Normalised rewards, the mean of each board where boards are repeated: shape [boards]."""
    rewards = _on_scale(result, [score.reward for score in result.scores])
    means: Floats = rewards.reshape(-1, repeats_of(result.config)).mean(axis=1)
    return means


def _normalised_range(result: Result) -> Floats:
    """The smallest and the largest return of the game, normalised."""
    return _on_scale(result, return_range(make_game(result.task)))


def _without_reading(result: Result, habit: float) -> float:
    """b_t: the best of random play, silence and habit on the episodes of a run, normalised."""
    return max(0.0, *map(float, _on_scale(result, [result.summary["references"]["silent"], habit])))


def _on_scale(result: Result, rewards: Sequence[float]) -> Floats:
    """Rewards on the scale of a run's task: 0 is random play, 1 the reference."""
    references = result.summary["references"]
    best = best_reference(references)
    assert best is not None  # the suite has only lakes and snakes
    return normalised(rewards, references["random"], best)


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
