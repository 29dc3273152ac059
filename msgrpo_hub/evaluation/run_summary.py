"""The summary of a whole run, as `results.json` stores it, and what it says of exactness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgrpo_hub.episode import NEAR, Episode, EpisodeScore, StepScore
from msgrpo_hub.evaluation.repeats import repeat_figures
from msgrpo_hub.evaluation.results import Result, player_key, player_names, run_hash
from msgrpo_hub.evaluation.suites import repeats_of
from msgrpo_hub.evaluation.summary import summarise


def run_summary(
    config: Mapping[str, Any],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
    near_draws: int | None,
) -> dict[str, Any]:
    """Everything that follows from the episodes of a run, and its number of near draws, which only the play gives.

    Args:
        config: of the run.
        episodes: the finished ones, in order.
        scores: their scores.
        steps: the scores of their steps.
        near_draws: draws that another rounding may turn; None where that is not known, and then it is left out.
    """
    run, missing = run_hash(config), config["episodes"] * repeats_of(config) - len(episodes)
    return {
        "run": run,
        "complete": not missing,
        "failed": missing,
        **({} if near_draws is None else {"near_draws": near_draws}),
        **summarise(config["task"], [episode.seed for episode in episodes], scores, steps, int(run, 16)),
        **({"repeated": repeat_figures(config, episodes, scores, int(run, 16))} if repeats_of(config) > 1 else {}),
    }


def is_plausible(result: Result) -> bool:
    """Whether the stored number of near draws is one that so many replies can have. It cannot be computed again."""
    near, steps = result.summary.get("near_draws", 0), [step for episode in result.episodes for step in episode.steps]
    return type(near) is int and 0 <= near <= sum(step.completion.reply_tokens or 1 for step in steps)


def near_draws(results: Sequence[Result]) -> list[str]:
    """One line per model that played on this machine: how many of its draws another rounding may turn."""
    counted = [result for result in results if "near_draws" in result.summary]
    lines = []
    for key, player in player_names(counted).items():
        own = [result for result in counted if player_key(result) == key]
        near, draws = sum(result.summary["near_draws"] for result in own), sum(map(_draws, own))
        lines.append(
            f"{player}: {near:,} of {draws:,} draws lie within {NEAR:g} of a boundary, and another rounding may turn them"
        )
    return lines


def _draws(result: Result) -> int:
    """One per token; a player that compares log-probabilities chooses once per step."""
    scored = result.config["identity"].get("mode") == "score"
    return int(result.summary["steps" if scored else "reply_tokens"] or 0)
