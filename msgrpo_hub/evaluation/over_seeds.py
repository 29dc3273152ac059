"""A figure of a method: its mean over training seeds, with an interval over these seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.evaluation.statistics import LEVEL, Interval, Range

FEWEST_SEEDS = 3


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


def method_interval(means: Sequence[float] | npt.NDArray[Any], level: float = LEVEL) -> Interval | None:
    """The t interval of a method's mean score, from the mean scores of its training seeds.

    Episodes of one training run are correlated, so the sample is the seed means, not the episodes. If all seeds play the same
    episodes, as `msgrpo train --seeds` and `msgrpo eval` have them do, the interval is about other training seeds on these
    episodes: what luck they have is common to all means, and not in their spread. It assumes that seed means are roughly normal;
    if some runs collapse and most do not, it is too narrow. Resampling whole seeds covers 0.83 at 5 seeds and 0.74 at 3.

    Args:
        means: one per training seed, shape [seeds]; every seed has the same weight.
        level: coverage of the interval.

    Returns:
        The interval around the mean of the seed means; None for fewer than 3 seeds, and if all means are equal: their spread
        says nothing then.

    Raises:
        ValueError: there are no seeds, or the means are not a flat list of finite numbers.
    """
    values = np.asarray(means, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError("a method interval needs a flat list of finite means, one per training seed")
    if len(values) < FEWEST_SEEDS or np.ptp(values) == 0:
        return None
    half = student_t(len(values) - 1, level) * values.std(ddof=1) / math.sqrt(len(values))
    return Interval(float(values.mean() - half), float(values.mean() + half), level)


def student_t(degrees: float, level: float) -> float:
    """The t with P(|T| ≤ t) = level. With T = √ν tan θ, the density of θ is proportional to cos^(ν − 1) θ."""
    theta = np.linspace(0, math.pi / 2, 20_001)
    density = np.cos(theta) ** (degrees - 1)
    below = np.concatenate([np.zeros(1), (density[1:] + density[:-1]).cumsum()])
    return math.sqrt(degrees) * math.tan(np.interp(level * below[-1], below, theta))
