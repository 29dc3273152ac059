"""The summary of a run: every score with its interval, and the references on the same episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import EpisodeScore
from msgrpo_hub.evaluation.statistics import Interval, Range, mean_interval
from msgrpo_hub.games import Game, base_game, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes

REFERENCE = "planner"
"""The reference player for Snake, which has no exact optimum. Its score is not an upper bound."""


def summarise(task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore], seed: int) -> dict[str, Any]:
    """All scores of one player on one task.

    Args:
        task: id of the game.
        seeds: seeds of the scored episodes.
        scores: their scores, in the same order.
        seed: seed of the bootstrap.

    Returns:
        Per score a number, or `{"mean", "low", "high", "rule"}` with a 95 % interval and the rule that made it. All three are
        None for fewer than 30 boards, unless all values are 0 or 1. Rates of replies are shares of all steps. A score that the
        game does not have is None.
    """
    steps = sum(score.steps for score in scores)
    rewards = [score.reward for score in scores]
    solved = bool(scores) and scores[0].value_optimal is not None
    ends = (_exact_ends(scores) if solved else _played_ends(task, tuple(dict.fromkeys(seeds)))) if scores else {}
    low, *above = ends.values() or (0.0,)
    return {
        "episodes": len(scores),
        **_figures(task, seeds, scores, seed),
        "normalised": float((np.mean(rewards) - low) / (above[0] - low)) if above and above[0] > low else None,
        "regret_per_step": sum(s.regret or 0.0 for s in scores) / steps if solved else None,
        "optimal_rate": sum(s.optimal_steps or 0 for s in scores) / steps if solved else None,
        "first_mistake": _first_mistakes(scores) if solved else None,
        "references": ends,
        "unreadable_rate": sum(s.unreadable for s in scores) / max(steps, 1),
        "truncated_rate": sum(s.truncated_replies for s in scores) / max(steps, 1),
        "illegal_rate": sum(s.illegal for s in scores) / max(steps, 1),
        "steps": steps,
        "prompt_tokens": _sum([s.prompt_tokens for s in scores]),
        "reply_tokens": _sum([s.reply_tokens for s in scores]),
        "above_optimum": _above(rewards, scores) if solved else False,
    }


def with_intervals_of_now(
    summary: Mapping[str, Any], task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore], seed: int
) -> dict[str, Any]:
    """A stored summary. Earlier versions had other intervals and did not name their rule: theirs are made anew."""
    own = {"rule"} <= (summary["success"] or {"rule": None}).keys()
    return {**summary, **({} if own else _figures(task, seeds, scores, seed))}


def _figures(task: str, boards: Sequence[int], scores: Sequence[EpisodeScore], seed: int) -> dict[str, Any]:
    """The scores that are means over episodes, with their intervals. Episodes of one seed share a board."""
    game, rewards = base_game(make_game(task)), [score.reward for score in scores]
    luckless = [round(score.luck_adjusted, 10) for score in scores if score.luck_adjusted is not None]
    range_of_luckless = return_range(game) if luckless == rewards else _luck_adjusted_range(game)
    return {
        "reward": _mean(rewards, seed, return_range(game), boards),
        "success": _mean([float(score.success) for score in scores], seed, (0.0, 1.0), boards),
        "luck_adjusted": _mean(luckless, seed, range_of_luckless, boards),
    }


def _luck_adjusted_range(game: Game) -> Range:
    """At most the best return, less a regret on every turn, each of which is at most the width of the return range."""
    low, high = return_range(game)
    return high - game.horizon * (high - low), high


def _mean(values: Sequence[float], seed: int, bounds: Range, boards: Sequence[int]) -> dict[str, Any] | None:
    """A mean with its interval. The last digits of values vary between processors, so callers round what they compute."""
    if not values:
        return None
    interval = mean_interval(values, seed, bounds=bounds, boards=boards)
    return {"mean": float(np.mean(values)), **as_figure(interval)}


def as_figure(interval: Interval | None) -> dict[str, Any]:
    """The ends of an interval and its rule as plain data, None without an interval."""
    return {name: getattr(interval, name, None) for name in ("low", "high", "rule")}


def _first_mistakes(scores: Sequence[EpisodeScore]) -> dict[str, float | None]:
    """The share of episodes without a mistake, and the mean step (from 0) of the first mistake in the others."""
    turns = [score.first_mistake for score in scores if score.first_mistake is not None]
    mistakes = [turn for turn in turns if turn >= 0]
    return {"episodes_without": 1 - len(mistakes) / len(turns), "mean_step": float(np.mean(mistakes)) if mistakes else None}


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _exact_ends(scores: Sequence[EpisodeScore]) -> dict[str, float]:
    """The exact values of random and optimal play, averaged over the maps that were played."""
    return {
        "random": float(np.mean([score.value_random for score in scores])),
        "optimal": float(np.mean([score.value_optimal for score in scores])),
    }


@lru_cache(maxsize=64)
def _played_ends(task: str, seeds: tuple[int, ...]) -> dict[str, float]:
    """The mean rewards of the random player, and of the reference if it knows the game, on the same seeds."""
    names = [name for name in ("random", REFERENCE) if can_play(name, make_game(task))]
    return {name: float(np.mean(reference_rewards(task, seeds, name))) for name in names}


def reference_rewards(task: str, seeds: Sequence[int], name: str) -> list[float]:
    """The rewards of a scripted player on some seeds."""
    return [e.reward for e in play_episodes(make_game(task), ScriptedPolicy(SCRIPTED[name]), [(seed, 0) for seed in seeds])]


def _above(rewards: Sequence[float], scores: Sequence[EpisodeScore]) -> bool:
    """Whether the mean exceeds the exact optimum by more than 4 standard errors, which indicates a fault."""
    excess = np.array(rewards) - np.array([score.value_optimal for score in scores], dtype=float)
    error = excess.std(ddof=1) / len(excess) ** 0.5 if len(excess) > 1 else np.inf
    return bool(excess.mean() > 4 * error + 1e-9)
