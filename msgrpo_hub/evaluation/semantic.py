"""The semantic score: whether a player follows the words of the suite `semantic`, or a habit, or does nothing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

from msgrpo_hub.evaluation.results import Result, player_key, run_hash
from msgrpo_hub.evaluation.statistics import BETTING, Floats, Interval, mean_interval
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.evaluation.summary import best_reference, figure
from msgrpo_hub.evaluation.tables import aligned, noted, short, with_interval
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range

SUITE = "semantic"
CONTROL = "irrelevant-sentence"
"""The variant with a sentence that changes nothing."""
SMALLEST_WORTH = 0.1
"""Tasks on which following the words is worth less do not count: they measure skill."""
MEANING = (
    "semantic score: the share of what following the words is worth; 1: follows them everywhere; habit, silence and random play "
    "score at most 0. Worth of the words, as a share of the way from random play to the reference: "
)


@dataclass(frozen=True, kw_only=True)
class SemanticScore:
    """The semantic score of a player."""

    player: Result
    """One of its runs, for its name."""
    figure: dict[str, Any]
    """The score with its 95 % interval over boards, as in a summary; without one if a task has fewer than 30 boards."""
    worth: Mapping[str, float]
    """Task that counts → 1 − b_t, the worth of following its words."""


def semantic_score(runs: Mapping[str, Result], habit: Mapping[str, float]) -> SemanticScore:
    """The share that a player gets of the worth of following the words.

        score = [Σ_t (x_t − b_t) + Σ_c (x_c − u_c)] / Σ_t (1 − b_t)

    x is a mean normalised reward: 0 is random play, 1 the reference, which follows the rules of the task. b_t is the best that
    can be had without reading: the largest of random play (0), silence, and habit, which plays as in the unchanged game. The
    first sum is over the tasks with 1 − b_t ≥ 0.1. Tasks c have an irrelevant sentence; u_c is the player's mean without it.
    `runs` has the player's complete run of each task, and `habit` the mean reward of habit on its episodes.
    A player that always follows the words scores 1. Habit, silence and random play score at most 0 in expectation. The interval
    adds the distances of the games' intervals from their means as standard errors (Zou and Donner 2008, Stat. in Medicine 27).
    """
    worth: dict[str, float] = {}
    parts: dict[str, list[tuple[Floats, Floats]]] = {}
    values, ranges = {}, {}
    for task, result in runs.items():  # of repeated boards, the mean of each
        rewards = _on_scale(result, [score.reward for score in result.scores])
        values[task] = rewards.reshape(-1, result.repeats).mean(axis=1)
        ranges[task] = _on_scale(result, return_range(make_game(task)))
    for task, result in runs.items():
        game_id, _, variant = task.partition(":")
        unread = max(0.0, *_on_scale(result, [result.summary["references"]["silent"], habit[task]]).tolist())
        if 1 - unread >= SMALLEST_WORTH:
            worth[task] = 1 - unread
            parts.setdefault(game_id, []).append((values[task] - (1 - worth[task]), ranges[task] - (1 - worth[task])))
        if variant == CONTROL:
            parts.setdefault(game_id, []).append((values[task] - values[game_id], ranges[task] - ranges[task][::-1]))
    # All variants of a game are played on the same boards: their sum is one value per board.
    seed = zlib.crc32("".join(run_hash(result.config) for result in runs.values()).encode())
    means, known = [], []
    for of_game in parts.values():
        gain, (low, high) = (np.sum(part, axis=0) for part in zip(*of_game, strict=True))
        means.append(float(gain.mean()))
        if own := mean_interval(gain, seed, bounds=(float(low), float(high))):
            known.append((means[-1], own))
    scale, total, interval = sum(worth.values()), sum(means), None
    if len(known) == len(means):
        below = math.hypot(*(mean - own.low for mean, own in known))
        above = math.hypot(*(own.high - mean for mean, own in known))
        rules = [own.rule for _, own in known]
        rule = BETTING if BETTING in rules else rules[0]
        interval = Interval((total - below) / scale, (total + above) / scale, rule=rule)
    return SemanticScore(player=next(iter(runs.values())), figure=figure(total / scale, interval), worth=worth)


def semantic_scores(results: Sequence[Result]) -> list[SemanticScore]:
    """The score of every player that has played the whole suite, the best first."""
    players: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        if result.config["suite"] == SUITE and result.complete:
            players.setdefault((player_key(result), result.repeats), {})[result.task] = result
    if not players:
        return []
    suite = load_suite(SUITE)
    scores = [semantic_score(runs, suite.habit) for runs in players.values() if runs.keys() == set(suite.tasks)]
    return sorted(scores, key=lambda score: -score.figure["mean"])


def semantic_table(results: Sequence[Result], name: Callable[[Result], str] | None = None, layout: str = "table") -> str:
    """A line for every player that has played the whole suite, the best first; empty if there are none."""
    if not (scores := semantic_scores(results)):
        return ""
    called = name or (lambda result: short(result.player))
    rows = [["player", "semantic score"], *([called(score.player), with_interval(score.figure)] for score in scores)]
    text = f"{meaning(scores)}." if layout == "markdown" else fill(meaning(scores), 120, break_on_hyphens=False)
    return noted(f"{aligned(rows, layout)}\n{text}").strip("\n")


def meaning(scores: Sequence[SemanticScore]) -> str:
    """What the score means, with the worth of each task that counts."""
    return MEANING + ", ".join(f"{task} {worth:.2f}" for task, worth in scores[0].worth.items())


def _on_scale(result: Result, rewards: Sequence[float]) -> Floats:
    """Rewards on the scale of a run's task: (reward − random) / (reference − random), never clipped."""
    references = result.summary["references"]
    random, best = references["random"], best_reference(references)
    assert best is not None  # the suite has only lakes and snakes
    if best == random:
        raise ValueError(f"cannot normalise {result.task}: random play and the reference both score {random}")
    return np.asarray((np.asarray(rewards, dtype=np.float64) - random) / (best - random))
