"""The summary of a run: every score with its interval, and the references on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import EpisodeScore, StepScore, known_sum
from msgrpo_hub.evaluation.statistics import Interval, Range, betting, board_means, degenerate, mean_interval
from msgrpo_hub.games import Game, base_game, is_remote, make_game
from msgrpo_hub.games.game import is_solvable, return_range
from msgrpo_hub.games.solving import TIE, silent_value
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes

REFERENCE = "planner"
"""The reference player for Snake, which has no exact optimum. Its score is not an upper bound."""

FEWEST_PARSED = 0.5
"""A player plays if at least this share of its replies was parsed. Otherwise its score is mostly that of doing nothing."""


def summarise(
    task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore], steps: Sequence[Sequence[StepScore]], seed: int
) -> dict[str, Any]:
    """All scores of one player on one task.

    Args:
        task: id of the game.
        seeds: seeds of the scored episodes.
        scores: their scores, in the same order.
        steps: the scores of their steps.
        seed: seed of the bootstrap.

    Returns:
        Per score a number, or `{"mean", "low", "high", "rule"}` with a 95 % interval and the rule that made it. All three are
        None for fewer than 30 boards, unless all values are 0 or 1. Rates of replies are shares of all steps. A score that the
        game does not have is None.
    """
    turns = sum(score.steps for score in scores)
    rewards = [score.reward for score in scores]
    solved = bool(scores) and scores[0].value_optimal is not None
    ends = _references(task, seeds, scores)
    low, high = ends.get("random", 0.0), best_reference(ends)
    return {
        "episodes": len(scores),
        **_figures(task, seeds, scores, seed),
        "normalised": float((np.mean(rewards) - low) / (high - low)) if high is not None and high > low else None,
        "regret_per_step": sum(s.regret or 0.0 for s in scores) / turns if solved else None,
        **_decisions(task, steps),
        "first_mistake": _first_mistakes(scores) if solved else None,
        "references": ends,
        "unreadable_rate": sum(s.unreadable for s in scores) / max(turns, 1),
        "truncated_rate": sum(s.truncated_replies for s in scores) / max(turns, 1),
        "illegal_rate": sum(s.illegal for s in scores) / max(turns, 1),
        "steps": turns,
        "prompt_tokens": known_sum([s.prompt_tokens for s in scores]),
        "reply_tokens": known_sum([s.reply_tokens for s in scores]),
        "above_optimum": _above(rewards, scores, return_range(make_game(task))) if solved else False,
    }


def plays(summary: Mapping[str, Any]) -> bool:
    """Whether at least half of a player's replies were parsed."""
    return bool(1 - summary["unreadable_rate"] - summary["truncated_rate"] > FEWEST_PARSED - 1e-9)


def rank_key(summary: Mapping[str, Any]) -> tuple[bool, float]:
    """Sorts results on one task: the best reward first, and after all others the players that do not play: they have no rank."""
    reward = summary["reward"]
    return not plays(summary), -reward["mean"] if reward else math.inf


def best_reference(references: Mapping[str, float]) -> float | None:
    """The value of optimal play, or of the reference player; None for a game that has neither."""
    return references.get("optimal", references.get(REFERENCE))


def _figures(task: str, boards: Sequence[int], scores: Sequence[EpisodeScore], seed: int) -> dict[str, Any]:
    """The scores that are means over episodes, with their intervals. Episodes of one seed share a board."""
    game, rewards = base_game(make_game(task)), [score.reward for score in scores]
    luckless = [round(score.luck_adjusted, 10) for score in scores if score.luck_adjusted is not None]
    range_of_luckless = return_range(game) if luckless == rewards else luck_adjusted_range(game)
    return {
        "reward": _mean(rewards, seed, return_range(game), boards),
        "success": _mean([float(score.success) for score in scores], seed, (0.0, 1.0), boards),
        "luck_adjusted": _mean(luckless, seed, range_of_luckless, boards),
    }


def luck_adjusted_range(game: Game) -> Range:
    """At most the best return, less a regret on every turn, each of which is at most the width of the return range."""
    low, high = return_range(game)
    return high - game.horizon * (high - low), high


def _mean(values: Sequence[float], seed: int, bounds: Range, boards: Sequence[int]) -> dict[str, Any] | None:
    """The mean over boards with its interval. Callers round what they compute: last digits vary between processors."""
    if not values:
        return None
    interval = mean_interval(values, seed, bounds=bounds, boards=boards)
    counted = values if len(set(Counter(boards).values())) < 2 else board_means(np.array(values), boards)
    return {"mean": float(np.mean(counted)), **as_figure(interval)}


def as_figure(interval: Interval | None) -> dict[str, Any]:
    """The ends of an interval and its rule as plain data, None without an interval."""
    return {name: getattr(interval, name, None) for name in ("low", "high", "rule")}


def _decisions(task: str, steps: Sequence[Sequence[StepScore]]) -> dict[str, float | None]:
    """The moves in states whose actions differ in value, and the share of them that was optimal.

    Elsewhere every action is optimal: once the goal is out of reach, or while turns are to spare.
    """
    actions = len(make_game(task).actions)
    judged = [(step.regret, step.optimal_actions) for episode in steps for step in episode if step.regret is not None]
    regrets = [regret for regret, optimal in judged if len(optimal) < actions]
    rate = sum(regret <= TIE for regret in regrets) / len(regrets) if regrets else None
    return {"decisions": len(regrets) if judged else None, "optimal_decisions": rate}


def _first_mistakes(scores: Sequence[EpisodeScore]) -> dict[str, float | None]:
    """The share of episodes without a mistake, and the mean step (from 0) of the first mistake in the others."""
    turns = [score.first_mistake for score in scores if score.first_mistake is not None]
    mistakes = [turn for turn in turns if turn >= 0]
    return {"episodes_without": 1 - len(mistakes) / len(turns), "mean_step": float(np.mean(mistakes)) if mistakes else None}


def _references(task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore]) -> dict[str, float]:
    """The values of silence, of random play and of the reference on the same episodes: exact where the game is solved.

    A game whose rules run elsewhere has none: a stored run is read where they do not run.
    """
    if not scores or is_remote(make_game(task)):
        return {}
    silent = {"silent": _silence(_game_id(task), _boards(seeds))}
    if scores[0].value_optimal is None:
        return silent | _played_ends(_game_id(task), _boards(seeds))
    return {
        **silent,
        "random": float(np.mean([score.value_random for score in scores])),
        "optimal": float(np.mean([score.value_optimal for score in scores])),
    }


def _game_id(task: str) -> str:
    """The game of a task without its variant: scripted players have the same rewards on every variant."""
    return task.partition(":")[0]


def _boards(seeds: Sequence[int]) -> tuple[int, ...]:
    """Every seed once, however often its board was played."""
    return tuple(dict.fromkeys(seeds))


@lru_cache(maxsize=64)
def _silence(game_id: str, seeds: tuple[int, ...]) -> float:
    """The mean value of the player `silent`, exact where the game is solved."""
    game = make_game(game_id)
    values = [silent_value(game, seed) for seed in seeds] if is_solvable(game) else reference_rewards(game_id, seeds, "silent")
    return float(np.mean(values))


@lru_cache(maxsize=64)
def _played_ends(game_id: str, seeds: tuple[int, ...]) -> dict[str, float]:
    """The mean rewards of the random player, and of the reference if it knows the game, on the same seeds."""
    names = [name for name in ("random", REFERENCE) if can_play(name, make_game(game_id))]
    return {name: float(np.mean(reference_rewards(game_id, seeds, name))) for name in names}


def reference_rewards(task: str, seeds: Sequence[int], name: str) -> list[float]:
    """The rewards of a scripted player on some seeds."""
    return [e.reward for e in play_episodes(make_game(task), ScriptedPolicy(SCRIPTED[name]), [(seed, 0) for seed in seeds])]


def _above(rewards: Sequence[float], scores: Sequence[EpisodeScore], bounds: Range) -> bool:
    """Whether the mean exceeds the exact optimum by more than luck, at 4 standard errors, which indicates a fault."""
    optimum = np.array([score.value_optimal for score in scores], dtype=float)
    excess = np.array(rewards) - optimum
    low, high = bounds[0] - optimum.max(), bounds[1] - optimum.min()
    if degenerate(excess) and 0 < high - low < np.inf:  # the spread that is seen says nothing
        return bool(betting(excess, (low, high), level=0.9999).low > 1e-9)
    return bool(excess.mean() > 4 * excess.std(ddof=1) / len(excess) ** 0.5 + 1e-9) if len(excess) > 1 else False
