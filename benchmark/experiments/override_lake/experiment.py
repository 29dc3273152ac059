"""Does an adapter of the lake follow what the rules say about the goal, and which training makes it do so?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import mean_with_interval, means_of
from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS

TOLD = {
    "The goal is a trap": ("FrozenLake-Trap-v1", "FrozenLake-KeepAway-v1"),
    "The goal is to be reached": ("FrozenLake-NotSlippery-v1", "FrozenLake-Sought-v1"),
}
"""Rule → the game whose words two arms have trained on, and the game with other words for it, new to “a trap”."""
CONTROL = ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery-v1:irrelevant-sentence")
"""The plain game, without and with an extra sentence that says nothing."""
OBEYS = 0.5
"""An adapter obeys above this share of the reward of obedience."""


class OverrideLake(Comparison):
    """The page compares the arms under both rules, in the words of their training and in other words."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        arms = self.arms(rows)
        if len(arms.get("a trap", ())) < FEWEST_SEEDS:
            return ""
        (trap, other_trap), (goal, other_goal) = (
            [float(np.mean(list(means_of(arms["a trap"], game).values()))) for game in wordings] for wordings in TOLD.values()
        )
        reads = min(1 + other_trap, other_goal) > OBEYS
        verdict = "follows words that it has not trained on" if reads else "has learned sentences, not to read"
        said = (
            f"An adapter {verdict}. An obedient one gets 0 if the goal is a trap, and 1 if it is to be reached. Trained on both"
            f" rules, each in one wording, it gets {trap:.2f} and {goal:.2f} in the words of its training, and {other_trap:.2f}"
            f" and {other_goal:.2f} in other words."
        )
        if many := arms.get("many words"):
            games = TOLD.values()
            (traps, keep_away), (goals, sought) = ([means_of(many, game).values() for game in wordings] for wordings in games)
            kept = sum(min(1 + one, 1 + other) > OBEYS for one, other in zip(traps, keep_away, strict=True))
            reached = sum(min(one, other) > OBEYS for one, other in zip(goals, sought, strict=True))
            said += (
                f" Of adapters trained on all four wordings, {kept} of {len(traps)} keep off a trap in both wordings, and"
                f" {reached} of {len(goals)} reach the goal in both."
            )
        if own := arms.get("its own words"):
            plain, extra = (mean_with_interval(own, game) for game in CONTROL)
            said += f" The control: one more sentence, which says nothing, takes “its own words” from {plain} to {extra}."
        return said

    def answer(self, rows: Mapping[str, Values]) -> str:
        head, _, findings = super().answer(rows).partition("\n\n")
        said = []
        for rule, wordings in TOLD.items():
            arms = [f"{a} {' and '.join(mean_with_interval(s, game) for game in wordings)}" for a, s in self.arms(rows).items()]
            said.append(f"**{rule}; in one wording, and in another.** {'; '.join(arms)}.")
        return "\n".join([head, "", f"- {' '.join(said)}", findings])


EXPERIMENT = OverrideLake("override_lake", "Does training in other words make an adapter of the lake follow the words?")
