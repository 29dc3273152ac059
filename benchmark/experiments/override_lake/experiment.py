"""Does an adapter of the lake follow what it is told of the goal, and what makes it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmark.experiments.arms import arms_of, compare_arms
from benchmark.experiments.curves import mean_with_interval
from benchmark.experiments.experiment import Values, configuration

CONFIG = configuration("override_lake")
COMPARED = compare_arms("override_lake", "Does training in other words make an adapter of the lake follow the words?")
TOLD = {
    "The goal is a trap": ("FrozenLake-Trap-v1", "FrozenLake-KeepAway-v1"),
    "The goal is to be reached": ("FrozenLake-NotSlippery-v1", "FrozenLake-Sought-v1"),
}
"""What holds → the game whose words two arms have trained on, and the one with words for the same that “a trap” has not."""


def answer(rows: Mapping[str, Values]) -> str:
    """What every arm gets under either rule, in two wordings each; then the findings by game."""
    head, _, findings = COMPARED.answer(rows).partition("\n\n")
    arms = arms_of(CONFIG, next(iter(CONFIG["updates"])), rows)
    said = []
    for rule, wordings in TOLD.items():
        of_arms = [f"{arm} {' and '.join(mean_with_interval(seeds, game) for game in wordings)}" for arm, seeds in arms.items()]
        said.append(f"**{rule}; told in one wording, and in another.** {'; '.join(of_arms)}.")
    return "\n".join([head, "", f"- {' '.join(said)}", findings])


EXPERIMENT = replace(COMPARED, answer=answer)
