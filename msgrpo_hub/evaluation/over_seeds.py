"""A figure of a method: its mean over training seeds, with an interval over these seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from msgrpo_hub.evaluation.aggregate import FEWEST_SEEDS, method_interval
from msgrpo_hub.evaluation.statistics import Interval, Range


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """A figure of a method."""

    by_seed: Mapping[int, float]
    """Training seed → the figure of its run."""
    mean: float
    std: float | None
    """Sample standard deviation over the seeds; None for one seed."""
    interval: Interval | None
    """Of the mean, over training seeds (see `method_interval`); None for fewer than 3 seeds, or if all have the same figure."""

    def __str__(self) -> str:
        return f"{self.mean:z.3f} {self.range}"

    @property
    def range(self) -> str:
        """The interval, or why there is none."""
        return str(self.interval or ("(under 3 seeds)" if len(self.by_seed) < FEWEST_SEEDS else "(every seed)"))

    def record(self) -> dict[str, Any]:
        """As plain data."""
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        return {"mean": self.mean, "interval": ends, "std": self.std, "by_seed": dict(self.by_seed)}


def over_seeds(by_seed: Mapping[int, float], bounds: Range | None = None) -> OverSeeds:
    """Mean, spread and interval of a figure over training seeds.

    Args:
        by_seed: training seed → the figure of its run; at least one.
        bounds: the smallest and the largest possible value; the interval does not leave them.

    >>> print(over_seeds({0: 0.9, 1: 1.0, 2: 0.95}, (0.0, 1.0)))
    0.950 [0.826, 1.000]
    >>> print(over_seeds({0: 1.0, 1: 1.0, 2: 1.0}))
    1.000 (every seed)
    """
    values = np.array([*by_seed.values()])
    interval = method_interval(values)
    if interval and bounds:
        interval = Interval(max(interval.low, bounds[0]), min(interval.high, bounds[1]), interval.level)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return OverSeeds(by_seed=dict(by_seed), mean=float(values.mean()), std=std, interval=interval)
