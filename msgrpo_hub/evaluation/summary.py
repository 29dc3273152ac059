"""The summary of a run, as `results.json` stores it: every score with its interval, and the references on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Episode, EpisodeScore, StepScore, known_sum
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.evaluation.statistics import Floats, Interval, Range, betting, board_means, degenerate, mean_interval
from msgrpo_hub.games import base_game, is_remote, make_game
from msgrpo_hub.games.game import is_solvable, return_range
from msgrpo_hub.games.solving import TIE, silent_value
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes

REFERENCE = "planner"
"""The reference player for Snake. Snake has no exact optimum, so a better player may score more."""

FEWEST_PARSED = 0.5
"""A player with a smaller share of parsed replies does not play: its score is mostly the score of doing nothing."""


def run_summary(
    config: Mapping[str, Any],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
    near_draws: int | None,
) -> dict[str, Any]:
    """The content of `results.json`, from the finished episodes of a run and their scores; `near_draws` only if it is known."""
    run, repeats = run_hash(config), config.get("repeats", 1)
    missing = config["episodes"] * repeats - len(episodes)
    return {
        "run": run,
        "complete": not missing,
        "failed": missing,
        **({} if near_draws is None else {"near_draws": near_draws}),
        **summarise(config["task"], [episode.seed for episode in episodes], scores, steps, int(run, 16)),
        **({"repeated": _repeated(repeats, episodes, scores, int(run, 16))} if repeats > 1 else {}),
    }


def summarise(
    task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore], steps: Sequence[Sequence[StepScore]], seed: int
) -> dict[str, Any]:
    """All scores of one player on one task, from the seeds of its episodes, which determine the boards, and their scores.

    Each is a number or a `figure` with a 95 % interval. Rates of replies are shares of all steps. A score that the game does not
    have is None. `seed` is for the bootstrap.
    """
    game, turns = make_game(task), sum(score.steps for score in scores)
    bounds, solved = return_range(base_game(game)), bool(scores) and scores[0].value_optimal is not None
    rewards, ends = [score.reward for score in scores], _references(task, seeds, scores)
    random, best = ends.get("random", 0.0), best_reference(ends)
    # Last digits vary between processors, so the values are rounded.
    adjusted = [round(score.luck_adjusted, 10) for score in scores if score.luck_adjusted is not None]
    # A regret on every turn, each at most the width of the return range, is subtracted from the best return.
    worst = bounds[1] - base_game(game).horizon * (bounds[1] - bounds[0])
    # Where the actions' values are equal, every action is optimal: only the other decisions count.
    judged = [(step.regret, step.optimal_actions) for episode in steps for step in episode if step.regret is not None]
    regrets = [regret for regret, optimal in judged if len(optimal) < len(game.actions)]
    first = [score.first_mistake for score in scores if score.first_mistake is not None]
    mistakes = [turn for turn in first if turn >= 0]
    mean_step = float(np.mean(mistakes)) if mistakes else None
    return {
        "episodes": len(scores),
        "reward": _mean(rewards, seed, bounds, seeds),
        "success": _mean([float(score.success) for score in scores], seed, (0.0, 1.0), seeds),
        "luck_adjusted": _mean(adjusted, seed, bounds if adjusted == rewards else (worst, bounds[1]), seeds),
        "normalised": float((np.mean(rewards) - random) / (best - random)) if best is not None and best > random else None,
        "regret_per_step": sum(s.regret or 0.0 for s in scores) / turns if solved else None,
        "decisions": len(regrets) if judged else None,
        "optimal_decisions": sum(regret <= TIE for regret in regrets) / len(regrets) if regrets else None,
        "first_mistake": {"episodes_without": 1 - len(mistakes) / len(first), "mean_step": mean_step} if solved else None,
        "references": ends,
        "unreadable_rate": sum(s.unreadable for s in scores) / max(turns, 1),
        "truncated_rate": sum(s.truncated_replies for s in scores) / max(turns, 1),
        "illegal_rate": sum(s.illegal for s in scores) / max(turns, 1),
        "steps": turns,
        "prompt_tokens": known_sum([s.prompt_tokens for s in scores]),
        "reply_tokens": known_sum([s.reply_tokens for s in scores]),
        "above_optimum": _above(rewards, scores, return_range(game)) if solved else False,
    }


def plays(summary: Mapping[str, Any]) -> bool:
    """Whether at least half of a player's replies were parsed."""
    return bool(1 - summary["unreadable_rate"] - summary["truncated_rate"] > FEWEST_PARSED - 1e-9)


def rank_key(summary: Mapping[str, Any]) -> tuple[bool, float]:
    """Sorts results on one task by reward, the best first. Players that do not play come last."""
    reward = summary["reward"]
    return not plays(summary), -reward["mean"] if reward else math.inf


def best_reference(references: Mapping[str, float]) -> float | None:
    """The value of optimal play, or of the reference player; None for a game that has neither."""
    return references.get("optimal", references.get(REFERENCE))


def _mean(values: Sequence[float], seed: int, bounds: Range, boards: Sequence[int]) -> dict[str, Any] | None:
    """The mean over boards with its interval."""
    if not values:
        return None
    counted = values if len(set(Counter(boards).values())) < 2 else board_means(np.array(values), boards)
    interval = mean_interval(values, seed, bounds=bounds, boards=boards)
    return figure(float(np.mean(counted)), interval)


def figure(mean: float, interval: Interval | None) -> dict[str, Any]:
    """A score as runs store it; the ends of the interval and its rule are None without an interval."""
    return {"mean": mean, **{name: getattr(interval, name, None) for name in ("low", "high", "rule")}}


def _references(task: str, seeds: Sequence[int], scores: Sequence[EpisodeScore]) -> dict[str, float]:
    """The values of silence, random play and the reference on the same episodes; none for a game whose rules run elsewhere."""
    if not scores or is_remote(make_game(task)):
        return {}
    game_id, boards = task.partition(":")[0], tuple(dict.fromkeys(seeds))  # scripted players ignore the variant
    silent = {"silent": _played(game_id, boards, "silent")}
    if scores[0].value_optimal is None:
        names = [name for name in ("random", REFERENCE) if can_play(name, make_game(game_id))]
        return silent | {name: _played(game_id, boards, name) for name in names}
    random, optimal = ([getattr(score, name) for score in scores] for name in ("value_random", "value_optimal"))
    return {**silent, "random": float(np.mean(random)), "optimal": float(np.mean(optimal))}


@lru_cache(maxsize=256)
def _played(game_id: str, seeds: tuple[int, ...], name: str) -> float:
    """The mean reward of a scripted player; exact for `silent` on a solved game."""
    game = make_game(game_id)
    if name == "silent" and is_solvable(game):
        return float(np.mean([silent_value(game, seed) for seed in seeds]))
    episodes = play_episodes(game, ScriptedPolicy(SCRIPTED[name]), [(seed, 0) for seed in seeds])
    return float(np.mean([episode.reward for episode in episodes]))


def _above(rewards: Sequence[float], scores: Sequence[EpisodeScore], bounds: Range) -> bool:
    """Whether the mean exceeds the exact optimum by more than luck, at 4 standard errors, which indicates a fault."""
    optimum = np.array([score.value_optimal for score in scores], dtype=float)
    excess = np.array(rewards) - optimum
    low, high = bounds[0] - optimum.max(), bounds[1] - optimum.min()
    if degenerate(excess) and 0 < high - low < np.inf:  # the observed spread says nothing
        return bool(betting(excess, (low, high), level=0.9999).low > 1e-9)
    return bool(excess.mean() > 4 * excess.std(ddof=1) / len(excess) ** 0.5 + 1e-9) if len(excess) > 1 else False


def _repeated(plays: int, episodes: Sequence[Episode], scores: Sequence[EpisodeScore], seed: int) -> dict[str, Any]:
    """The figures of a run that plays each board several times.

    `boards` is the number of boards that all plays have finished; the other figures are about these. `runs`: the mean of each
    play. `run_to_run`: the standard deviation of the mean of one play over the same B boards, √(Σ_b s_b²) / B, with s_b² the
    sample variance of board b. `pass_at`: k → the probability that one of k plays succeeds, with its interval over boards.
    """
    of_boards: dict[int, list[EpisodeScore]] = {}
    for episode, score in zip(episodes, scores, strict=True):
        of_boards.setdefault(episode.seed, []).append(score)
    whole = [of_board for of_board in of_boards.values() if len(of_board) == plays]
    if not (count := len(whole)):
        return {"boards": 0}
    values: dict[str, Floats] = {  # shape [boards, plays]
        name: np.array([[float(getattr(score, name)) for score in of_board] for of_board in whole])
        for name in ("reward", "success")
    }
    wins = values["success"].sum(axis=1)
    ks = sorted({2**power for power in range(plays.bit_length())} | {plays})
    return {
        "boards": count,
        "runs": {name: of_plays.mean(axis=0).tolist() for name, of_plays in values.items()},
        "run_to_run": {name: float(np.sqrt(of.var(axis=1, ddof=1).sum()) / count) for name, of in values.items()},
        "pass_at": {str(k): _mean([pass_at_k(plays, int(n), k) for n in wins], seed, (0.0, 1.0), range(count)) for k in ks},
    }


def pass_at_k(plays: int, successes: int, k: int) -> float:
    """The unbiased estimate of the probability that one of k plays succeeds: 1 − C(n − c, k) / C(n, k).

    It is the share of all choices of k of the n plays that have a success (Chen et al. 2021, arXiv 2107.03374, §2.1).

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 3), pass_at_k(5, 2, 4)
    (0.4, 0.9, 1.0)
    """
    return 1 - math.comb(plays - successes, k) / math.comb(plays, k)
