"""Does learning from a few selected episodes pay? At equal numbers of updates, and in equal time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import compare_arms, titled
from benchmark.experiments.curves import Arms, findings
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import headline as of_arms

CONFIG = configuration("selection")
COMPARED = compare_arms("selection", "Does learning from a few selected episodes pay?")


def headline(rows: Mapping[str, Values]) -> str:
    """How the arms compare after as many updates, and after as many seconds."""
    found = [(title, of_arms(arms), of_arms(in_equal_time(arms))) for title, arms in titled(CONFIG, rows)]
    return "\n\n".join(
        f"**{title}.** {said} In equal time, by validation reward, {READ}: {of_time}" for title, said, of_time in found if said
    )


READ = "where a slower arm is read earlier in its schedule, at a higher learning rate"
"""What equal time means for runs that were planned for equal updates."""


def answer(rows: Mapping[str, Values]) -> str:
    """The answer for equal numbers of updates, and the same in equal time."""
    found = [f"- **{title}, in equal time.** {findings(in_equal_time(arms))}" for title, arms in titled(CONFIG, rows)]
    head = (
        "In equal time: validation rewards at the processor time that the fastest arm took for all its updates with the same"
        f" seed, read off between two evaluations, {READ}; runs that are planned for that time were not made. A run takes longer"
        " where others share its processor."
    )
    return "\n".join([COMPARED.answer(rows), "", head, "", *found])


def in_equal_time(arms: Arms) -> dict[str, dict[int, Values]]:
    """The arms with what each had reached when the fastest arm of a seed was through, as their reward."""
    least = {
        seed: min(seeds[seed]["seconds"] for seeds in arms.values() if seed in seeds) for seeds in arms.values() for seed in seeds
    }
    return {
        arm: {seed: {**values, "test_rewards": [reward_after(values, least[seed])]} for seed, values in seeds.items()}
        for arm, seeds in arms.items()
    }


def reward_after(values: Values, seconds: float) -> float:
    """The validation reward after some processor time of updates, which all take as long.

    >>> reward_after({"curve": [[0, 0.0], [10, 1.0], [20, 1.5]], "seconds": 40.0}, 30.0)
    1.25
    """
    updates, rewards = zip(*values["curve"], strict=True)
    return float(np.interp(updates[-1] * seconds / values["seconds"], updates, rewards))


EXPERIMENT = replace(COMPARED, headline=headline, answer=answer)
