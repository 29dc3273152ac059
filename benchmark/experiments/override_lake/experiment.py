"""Does an adapter of the lake follow what it is told of the goal, and what makes it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import arms_of, compare_arms
from benchmark.experiments.curves import Arms, mean_with_interval, means_of
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import LEAST

CONFIG = configuration("override_lake")
COMPARED = compare_arms("override_lake", "Does training in other words make an adapter of the lake follow the words?")
TOLD = {
    "The goal is a trap": ("FrozenLake-Trap-v1", "FrozenLake-KeepAway-v1"),
    "The goal is to be reached": ("FrozenLake-NotSlippery-v1", "FrozenLake-Sought-v1"),
}
"""What holds → the game whose words two arms have trained on, and the one with words for the same that “a trap” has not."""


CONTROL = ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery-v1:irrelevant-sentence")
"""The plain game, without and with a sentence more that says nothing."""

OBEYS = 0.5
"""Least share of what obeying would bring, of the difference between walking to the goal and keeping off it."""


def headline(rows: Mapping[str, Values]) -> str:
    """What the arm that trained on both rules makes of words that it knows, and of others."""
    arms = arms_of(CONFIG, next(iter(CONFIG["updates"])), rows)
    if "a trap" not in arms or len(arms["a trap"]) < LEAST:
        return ""
    (trap, other_trap), (goal, other_goal) = (
        [float(np.mean(list(means_of(arms["a trap"], game).values()))) for game in wordings] for wordings in TOLD.values()
    )
    kept, reached = 1 + other_trap, other_goal
    verdict = (
        "An adapter follows words that it has not trained on"
        if min(kept, reached) > OBEYS
        else "An adapter has learned sentences, not to read"
    )
    return (
        f"{verdict}. Obeying brings 0 where the goal is a trap, and 1 where it is to be reached. Trained on both rules, each in"
        f" one wording, it gets {trap:.2f} and {goal:.2f} in the words of its training, and {other_trap:.2f} and {other_goal:.2f}"
        f" in other words.{_many_words(arms)}{_control(arms)}"
    )


def _many_words(arms: Arms) -> str:
    """How many seeds of the arm that trained on all wordings get what obeying brings, under each."""
    if "many words" not in arms:
        return ""
    (trap, keep_away), (goal, sought) = (
        [means_of(arms["many words"], game).values() for game in wordings] for wordings in TOLD.values()
    )
    kept = sum(min(1 + one, 1 + other) > OBEYS for one, other in zip(trap, keep_away, strict=True))
    reached = sum(min(one, other) > OBEYS for one, other in zip(goal, sought, strict=True))
    return (
        f" Of adapters trained on all four wordings, {kept} of {len(trap)} keep off a trap in both wordings, and {reached} of"
        f" {len(goal)} reach the goal in both."
    )


def _control(arms: Arms) -> str:
    """What a sentence that says nothing does to the adapter of the plain game."""
    if "its own words" not in arms:
        return ""
    plain, told = (mean_with_interval(arms["its own words"], game) for game in CONTROL)
    return f" The control: one more sentence, which says nothing, takes “its own words” from {plain} to {told}."


def answer(rows: Mapping[str, Values]) -> str:
    """What every arm gets under either rule, in two wordings each; then the findings by game."""
    head, _, findings = COMPARED.answer(rows).partition("\n\n")
    arms = arms_of(CONFIG, next(iter(CONFIG["updates"])), rows)
    said = []
    for rule, wordings in TOLD.items():
        of_arms = [f"{arm} {' and '.join(mean_with_interval(seeds, game) for game in wordings)}" for arm, seeds in arms.items()]
        said.append(f"**{rule}; told in one wording, and in another.** {'; '.join(of_arms)}.")
    return "\n".join([head, "", f"- {' '.join(said)}", findings])


EXPERIMENT = replace(COMPARED, headline=headline, answer=answer)
