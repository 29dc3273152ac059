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
    """How the arms compare, and the seeds that stagnated under each."""
    found = [(title, of_arms(arms), _stuck(arms)) for title, arms in titled(CONFIG, rows)]
    return "\n\n".join(f"**{title}.** {said} {stuck}" for title, said, stuck in found if said)


def _stuck(arms: Arms) -> str:
    ends = {arm: [float(values["curve"][-1][1]) for values in seeds.values()] for arm, seeds in arms.items()}
    best = max(map(max, ends.values()))
    counts = [f"{sum(end < STUCK * best for end in of_seeds)} of {len(of_seeds)} with “{arm}”" for arm, of_seeds in ends.items()]
    return f"Seeds that ended below half of the best one: {', '.join(counts)}."


EXPERIMENT = replace(COMPARED, headline=headline)
