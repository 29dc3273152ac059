"""Does learning from a few selected episodes pay? At equal numbers of updates, and in equal time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import Arms, findings, headline
from benchmark.experiments.experiment import Values

READ = "where slower arms count earlier in their schedule, at a higher learning rate"
"""What equal time means for runs that were planned for equal updates."""


class Selection(Comparison):
    """The page compares the arms after equal updates, and in equal time."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        found = [(title, headline(arms), headline(in_equal_time(arms))) for title, arms in self.titled(rows)]
        return "\n\n".join(
            f"**{title}.** {said} In equal time, by validation reward, {READ}: {of_time}"
            for title, said, of_time in found
            if said
        )

    def answer(self, rows: Mapping[str, Values]) -> str:
        found = [f"- **{title}, in equal time.** {findings(in_equal_time(arms))}" for title, arms in self.titled(rows)]
        head = (
            "In equal time: validation rewards at the processor time that the fastest arm took for all its updates with the same"
            f" seed, interpolated between evaluations, {READ}; no run was planned for that time. A run takes longer if others"
            " share its processor."
        )
        return "\n".join([super().answer(rows), "", head, "", *found])


def in_equal_time(arms: Arms) -> dict[str, dict[int, Values]]:
    """The arms with the validation reward that each had when the fastest arm of its seed ended, as their test reward.

    Rewards are interpolated between evaluations; all updates of a run count as equally long.
    """
    found: dict[str, dict[int, Values]] = {}
    for arm, seeds in arms.items():
        for seed, values in seeds.items():
            least = min(others[seed]["seconds"] for others in arms.values() if seed in others)
            updates, rewards = zip(*values["curve"], strict=True)
            reward = float(np.interp(updates[-1] * least / values["seconds"], updates, rewards))
            found.setdefault(arm, {})[seed] = {**values, "test_rewards": [reward]}
    return found


EXPERIMENT = Selection("selection", "Does learning from a few selected episodes pay?")
