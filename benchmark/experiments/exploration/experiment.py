"""Does a temperature that rises while returns stagnate help the seeds that do?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmark.experiments.arms import compare_arms, titled
from benchmark.experiments.curves import Arms
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import headline as of_arms

CONFIG = configuration("exploration")
COMPARED = compare_arms("exploration", "Does a temperature that rises while returns stagnate help?")
STUCK = 0.5
"""A seed stagnates if it ends below this share of the best seed of all arms, in validation reward."""


def headline(rows: Mapping[str, Values]) -> str:
    """How the arms of each learning rate compare, and the seeds that stagnated under each."""
    found = [
        (f"{title}{rate}", of_arms(of_rate), _stuck(of_rate, arms))
        for title, arms in titled(CONFIG, rows)
        for rate, of_rate in by_rate(arms).items()
    ]
    return "\n\n".join(f"**{title}.** {said} {stuck}" for title, said, stuck in found if said)


def by_rate(arms: Arms) -> dict[str, Arms]:
    """The arms with the learning rate of the preset, and those whose names state another.

    >>> list(by_rate({"adaptive": {}, "adaptive, rate 0.005": {}}).items())
    [('', {'adaptive': {}}), (', rate 0.005', {'adaptive, rate 0.005': {}})]
    """
    found: dict[str, dict[str, Mapping[int, Values]]] = {}
    for arm, seeds in arms.items():
        _, rate, of_arm = arm.partition(", rate ")
        found.setdefault(rate + of_arm, {})[arm] = seeds
    return dict(found)


def _stuck(arms: Arms, every: Arms) -> str:
    ends = {arm: [float(values["curve"][-1][1]) for values in seeds.values()] for arm, seeds in every.items()}
    best = max(map(max, ends.values()))
    counts = [f"{sum(end < STUCK * best for end in ends[arm])} of {len(ends[arm])} with “{arm}”" for arm in arms]
    return f"Seeds that ended below half of the best one of all: {', '.join(counts)}."


EXPERIMENT = replace(COMPARED, headline=headline)
