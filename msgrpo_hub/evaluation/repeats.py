"""Repeats: what K plays of each board say beyond their mean. Every play has dynamics and sampling of its own.

- Run to run: how much the mean of a run changes if the same boards are played again.
- pass@k: the probability that at least one of k plays of a board succeeds.
- Variance: how much of the spread of single episodes comes from the board, from the chance of the game, and from sampling.

Chance and sampling vary together from play to play, so their parts cannot be told apart from plays alone. What is exact is used
instead: a game that drew nothing has no chance, and a player that draws nothing has no sampling. Where both draw, their sum is
given, and neither part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.episode import Episode, EpisodeScore
from msgrpo_hub.evaluation.statistics import mean_interval
from msgrpo_hub.evaluation.summary import as_figure
from msgrpo_hub.games import Game, is_remote, make_game, stream
from msgrpo_hub.players.registry import DRAWING, SCRIPTED

Floats = npt.NDArray[np.float64]


def repeat_figures(
    config: Mapping[str, Any], episodes: Sequence[Episode], scores: Sequence[EpisodeScore], seed: int
) -> dict[str, Any]:
    """The figures of a run that plays each board several times.

    Args:
        config: of the run.
        episodes: the finished ones, in order.
        scores: their scores.
        seed: seed of the bootstrap.

    Returns:
        `boards` that all K plays have finished, which the rest is about; the mean of each play over them (`runs`); its standard
        deviation from run to run on the same boards; pass@k with 95 % intervals over boards; and the parts of the variance.
        Without boards, `boards` alone.
    """
    plays = config["repeats"]
    scores_of: dict[int, list[EpisodeScore]] = {}
    for episode, score in zip(episodes, scores, strict=True):
        scores_of.setdefault(episode.seed, []).append(score)
    whole = [of_board for of_board in scores_of.values() if len(of_board) == plays]
    if not whole:
        return {"boards": 0}
    values = {
        "reward": np.array([[score.reward for score in of_board] for of_board in whole]),
        "success": np.array([[float(score.success) for score in of_board] for of_board in whole]),
    }
    game = make_game(config["task"])
    chance = is_remote(game) or has_chance(game, episodes)  # nobody plays on a server to find out
    sampling = may_draw(config["identity"])
    return {
        "boards": len(whole),
        "runs": {name: of_plays.mean(axis=0).tolist() for name, of_plays in values.items()},
        "run_to_run": {name: run_to_run(of_plays) for name, of_plays in values.items()},
        "pass_at": _pass_at(values["success"], seed),
        "variance": {name: variance_parts(of_plays, chance=chance, sampling=sampling) for name, of_plays in values.items()},
    }


def pass_at_k(plays: int, successes: int, k: int) -> float:
    """The unbiased estimate of the probability that one of k plays succeeds: 1 − C(n − c, k) / C(n, k).

    It is the share of all choices of k of the n plays that have a success (Chen et al. 2021, arXiv 2107.03374, §2.1).
    1 − (1 − c / n)^k would be too low.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 3), pass_at_k(5, 2, 4)
    (0.4, 0.9, 1.0)
    """
    return 1 - math.comb(plays - successes, k) / math.comb(plays, k)


def _pass_at(success: Floats, seed: int) -> dict[str, dict[str, Any]]:
    """k → pass@k averaged over boards, with its interval; k is 1, 2, 4 … and the number of plays. Shape [boards, plays]."""
    plays = success.shape[1]
    figures = {}
    for k in sorted({2**power for power in range(plays.bit_length())} | {plays}):
        of_boards = [pass_at_k(plays, int(successes), k) for successes in success.sum(axis=1)]
        interval = mean_interval(of_boards, seed, bounds=(0.0, 1.0))
        figures[str(k)] = {"mean": float(np.mean(of_boards)), **as_figure(interval)}
    return figures


def run_to_run(values: Floats) -> float:
    """The standard deviation of the mean of a run that plays the same B boards once: √(Σ_b s_b²) / B.

    s_b² is the sample variance of the plays of board b. It rests on all boards, so it is far less noisy than the spread of the
    K means.

    Args:
        values: one per board and play, shape [B, K].
    """
    return float(np.sqrt(values.var(axis=1, ddof=1).sum()) / len(values))


def variance_parts(values: Floats, *, chance: bool, sampling: bool) -> dict[str, float | None]:
    """The variance of a single episode, divided by the analysis of variance with random boards.

    With y_bm = μ + β_b + ε_bm for play m of board b, the estimates are (Searle, Casella and McCulloch 1992, §3.6)

    - within boards: Var(ε) = the mean of the boards' sample variances;
    - board: Var(β) = the sample variance of the boards' means − within / K.

    Both are unbiased, so that of the board can be slightly negative where boards hardly matter. Within boards, chance and
    sampling are told apart only if one of them is known to be absent.

    Args:
        values: one per board and play, shape [B, K].
        chance: whether the game drew anything.
        sampling: whether the player may draw.

    Returns:
        `board` (None for a single board), `within`, and its parts `chance` and `sampling` (None if they cannot be told apart).
    """
    within = float(values.var(axis=1, ddof=1).mean())
    board = float(values.mean(axis=1).var(ddof=1)) - within / values.shape[1] if len(values) > 1 else None
    known = not (chance and sampling)
    parts = {"chance": within if chance else 0.0, "sampling": within if sampling else 0.0}
    return {"board": board, "within": within, **(parts if known else dict.fromkeys(parts))}


def has_chance(game: Game, episodes: Sequence[Episode]) -> bool:
    """Whether the game drew anything in these episodes, from a replay that watches its generator."""
    return any(_drew(game, episode) for episode in episodes)


def _drew(game: Game, episode: Episode) -> bool:
    state, dynamics = game.initial_state(stream(episode.seed, "initial_state")), stream(episode.seed, "dynamics", episode.member)
    before = dynamics.bit_generator.state
    for step in episode.steps:
        state = game.step(state, step.action, dynamics).state
    return bool(dynamics.bit_generator.state != before)


def may_draw(identity: Mapping[str, Any]) -> bool:
    """Whether a player may answer one prompt in two ways; greedy models and most scripted players do not.

    >>> may_draw({"kind": "scripted", "player": "greedy"}), may_draw({"kind": "language model", "temperature": 0.5})
    (False, True)
    """
    kind = identity.get("kind")
    if kind == "scripted":
        return identity.get("player") in DRAWING or identity.get("player") not in SCRIPTED
    if kind == "language model":
        return identity.get("mode") != "score" and identity.get("temperature") != 0
    return bool(kind != "dqn")  # a server may answer differently even at temperature 0
