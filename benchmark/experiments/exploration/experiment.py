"""Does a temperature that rises while returns stagnate help the seeds that stagnate?"""

from __future__ import annotations

from collections.abc import Mapping

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import Arms, headline
from benchmark.experiments.experiment import Values

STUCK = 0.5
"""A seed stagnates if its validation reward ends below this share of the best seed's."""


class Exploration(Comparison):
    """The headline compares the arms of each learning rate, and counts the seeds that stagnated."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        said = []
        for title, arms in self.titled(rows):
            ends = {arm: [float(values["curve"][-1][1]) for values in seeds.values()] for arm, seeds in arms.items()}
            best = max(map(max, ends.values()))
            for rate, of_rate in by_rate(arms).items():
                counts = [f"{sum(end < STUCK * best for end in ends[arm])} of {len(ends[arm])} with “{arm}”" for arm in of_rate]
                stuck = f"Seeds that ended below half of the best one of all: {', '.join(counts)}."
                said += [f"**{title}{rate}.** {found} {stuck}"] if (found := headline(of_rate)) else []
        return "\n\n".join(said)


def by_rate(arms: Arms) -> dict[str, Arms]:
    """The arms with the preset's learning rate, and those whose names state another.

    >>> list(by_rate({"adaptive": {}, "adaptive, rate 0.005": {}}).items())
    [('', {'adaptive': {}}), (', rate 0.005', {'adaptive, rate 0.005': {}})]
    """
    found: dict[str, dict[str, Mapping[int, Values]]] = {}
    for arm, seeds in arms.items():
        _, rate, of_arm = arm.partition(", rate ")
        found.setdefault(rate + of_arm, {})[arm] = seeds
    return dict(found)


EXPERIMENT = Exploration("exploration", "Does a temperature that rises while returns stagnate help?")
