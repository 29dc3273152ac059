"""Does an adapter of the lake follow what it is told of the goal, and what makes it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import arms_of, compare_arms
from benchmark.experiments.curves import mean_with_interval, means_of
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import LEAST

CONFIG = configuration("override_lake")
COMPARED = compare_arms("override_lake", "Does training in other words make an adapter of the lake follow the words?")
TOLD = {
    "The goal is a trap": ("FrozenLake-Trap-v1", "FrozenLake-KeepAway-v1"),
    "The goal is to be reached": ("FrozenLake-NotSlippery-v1", "FrozenLake-Sought-v1"),
}
"""What holds → the game whose words two arms have trained on, and the one with words for the same that “a trap” has not."""


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
        "It follows words that it has not trained on" if min(kept, reached) > OBEYS else "It has learned sentences, not to read"
    )
    return (
        f"Trained on both rules, each in one wording, an adapter gets {trap:.2f} where the goal is a trap and {goal:.2f} where it"
        f" is to be reached, if told so in these words; in others {other_trap:.2f} and {other_goal:.2f}, where obeying brings 0"
        f" and 1. {verdict}."
    )


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
