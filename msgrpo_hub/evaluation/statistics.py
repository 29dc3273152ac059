"""Confidence intervals of means over episodes and over training seeds. The tests measure their coverage.

Success rates and rewards of 0 or 1 get Wilson's interval, other returns a studentised bootstrap. A bootstrap cannot see rare
values in a sample of nearly equal ones; such a sample gets an interval for bounded means, which needs the return range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
RESAMPLES = 9_999
"""One less than a round number, so that the percentiles are order statistics."""
SMALLEST_SAMPLE = 30
"""Fewest values for a bootstrap: with fewer, its coverage is below the level."""
FEWEST_OTHERS = 6
"""A sample with fewer values that differ from the most frequent one is degenerate."""
FEWEST_SEEDS = 3
"""Fewest training seeds for an interval over seeds."""
NO_INTERVAL = "(no interval)"
"""Shown in place of an interval: too few values, or values that do not differ and have no known bounds."""
RULES = WILSON, BOOTSTRAP, BETTING = "wilson", "studentised bootstrap", "betting on the return range"
"""How intervals are computed (`Interval.rule`)."""
ROUNDING = 1e-9
"""Tolerance for values outside their bounds."""

Range = tuple[float, float]
"""The smallest and the largest possible value."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval: over repeated experiments, 95 % of the intervals contain the true value."""

    low: float
    high: float
    rule: str = field(default=WILSON, compare=False)
    """One of `RULES`."""

    def __str__(self) -> str:
        return f"[{self.low:z.3f}, {self.high:z.3f}]"


def wilson(successes: int, n: int) -> Interval:
    """The score interval of a success rate (Wilson 1927): the rates p that a test of size 0.05 does not reject.

    Raises `ValueError` unless `successes` is between 0 and `n`, and `n` above 0.

    >>> print(wilson(0, 10), wilson(169, 200))
    [0.000, 0.278] [0.788, 0.889]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes in {n} episodes: expected 0 ≤ successes ≤ episodes, and at least one episode")
    from scipy.stats import binomtest  # takes half a second to import

    found = binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return Interval(float(found.low), float(found.high))


def mean_interval(
    values: Sequence[float] | Floats, seed: int, bounds: Range | None = None, boards: Sequence[int] | None = None
) -> Interval | None:
    """The interval of a mean of one value per episode, shape [n], never of width 0.

    Values of 0 and 1 get Wilson's interval, unless the bounds allow other values. Other values get a studentised bootstrap, or
    `betting` if the sample is degenerate. With the seeds of the episodes' `boards`, the mean of each board counts as one value.
    The result does not depend on the order of the values. None for fewer than 30 values other than 0 and 1, and for a
    degenerate sample without bounds. Raises `ValueError` for values that are not finite, not a flat list, or outside the bounds.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError("a mean interval needs a flat list of finite values")
    if bounds and sample.size and (sample.min() < bounds[0] - ROUNDING or sample.max() > bounds[1] + ROUNDING):
        raise ValueError(f"a mean interval got values from {sample.min()} to {sample.max()}, expected {bounds[0]} to {bounds[1]}")
    sample = sample if boards is None else board_means(sample, boards)
    if sample.size and bounds in (None, (0.0, 1.0)) and np.isin(sample, (0, 1)).all():
        return wilson(int(sample.sum()), len(sample))
    if len(sample) < SMALLEST_SAMPLE:
        return None
    if not degenerate(sample):
        return _studentised(sample, seed, bounds or (-np.inf, np.inf))
    return betting(sample, bounds) if bounds and np.isfinite(bounds).all() else None


def board_means(values: Floats, boards: Sequence[int]) -> Floats:
    """The mean of the values of each board, shape [boards]."""
    _, board, counts = np.unique(np.asarray(boards), return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(board, values) / counts)


def degenerate(sample: Floats) -> bool:
    """Whether fewer than `FEWEST_OTHERS` values differ from the most frequent one."""
    _, counts = np.unique(sample, return_counts=True)
    return bool(counts.sum() - counts.max() < FEWEST_OTHERS)


def _studentised(sample: Floats, seed: int, bounds: Range) -> Interval:
    """The bootstrap-t interval (Efron and Tibshirani 1993, §12.5), clipped to the bounds.

    It takes the quantiles of (resampled mean − mean) / resampled standard error. Rewards have few distinct values, so the
    counts of the distinct values are resampled.
    """
    distinct, counts = np.unique(sample, return_counts=True)
    mean = float(distinct @ counts) / len(sample)
    deviations = distinct - mean
    shares = np.random.default_rng(seed).multinomial(len(sample), counts / len(sample), size=RESAMPLES) / len(sample)
    shifts = shares @ deviations
    spreads = np.sqrt(np.maximum(shares @ deviations**2 - shifts**2, 0.0))
    spread = float(np.sqrt(counts @ deviations**2 / len(sample)))
    ratios = shifts / np.maximum(spreads, 1e-9 * spread)  # a resample of equal values counts as far away
    low, high = mean - spread * np.quantile(ratios, [(1 + LEVEL) / 2, (1 - LEVEL) / 2])
    return Interval(max(float(low), bounds[0]), min(float(high), bounds[1]), BOOTSTRAP)


_STAKES = np.linspace(0.05, 1.0, 20)
_WEIGHTS = np.append(np.full(19, 0.5 / 19), 0.5)
"""Half of the capital uses the stake 1: it is the best stake if all values are equal."""


def betting(sample: Floats, bounds: Range, level: float = LEVEL) -> Interval:
    """An interval for the mean of bounded values that covers at every n (Waudby-Smith and Ramdas 2024, JRSS B 86).

    A bet that the mean is above m stakes a share u of the capital on each value. If the mean is m, the expected capital stays
    1, so it reaches 2 / (1 − level) with a probability of at most (1 − level) / 2. The low end is the largest m at which it
    does; the high end comes from the opposite bets. The capital is averaged over a grid of stakes.

    >>> print(betting(np.zeros(50), (0.0, 1.0)))
    [0.000, 0.080]
    """
    low, high = bounds
    scaled = (sample - low) / (high - low)

    def refuted(values: Floats) -> float:
        """The largest mean that the bets on values in [0, 1] refute, by bisection: the capital falls with m."""
        distinct, counts = np.unique(np.clip(values, 0.0, 1.0), return_counts=True)
        below, above = 0.0, 1.0
        for _ in range(50):
            m = (below + above) / 2
            with np.errstate(divide="ignore"):  # a stake of 1 loses everything on a value of 0
                logs = np.log1p(np.outer(_STAKES, distinct / m - 1)) @ counts + np.log(_WEIGHTS)
            won = np.logaddexp.reduce(logs) >= np.log(2 / (1 - level))
            below, above = (m, above) if won else (below, m)
        return below

    return Interval(low + (high - low) * refuted(scaled), high - (high - low) * refuted(1 - scaled), BETTING)


def method_interval(means: Sequence[float] | Floats, level: float = LEVEL) -> Interval | None:
    """Student's t interval of a training method's mean score, from the mean score of each training seed, shape [seeds].

    Episodes of one training run are correlated, so seeds are the sample. If all seeds play the same episodes, the luck of these
    episodes is not in their spread. The interval is too narrow if some runs collapse and most do not. None for fewer than 3
    seeds, or if all means are equal. Raises `ValueError` without a flat list of finite means.
    """
    values = np.asarray(means, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError("a method interval needs a flat list of finite means, one per training seed")
    if len(values) < FEWEST_SEEDS or np.ptp(values) == 0:
        return None
    from scipy.stats import t

    low, high = t.interval(level, len(values) - 1, values.mean(), values.std(ddof=1) / len(values) ** 0.5)
    return Interval(float(low), float(high))


def welch(a: Floats, b: Floats, level: float = LEVEL) -> Interval | None:
    """The interval of mean(b) − mean(a) for samples of different spread (Welch 1947); None if neither has any spread."""
    if np.ptp(a) == np.ptp(b) == 0:
        return None
    from scipy.stats import ttest_ind

    found = ttest_ind(b, a, equal_var=False).confidence_interval(level)
    return Interval(float(found.low), float(found.high))


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """A figure of a training method over its training seeds."""

    by_seed: Mapping[int, float]
    """Training seed → the figure of its run."""
    mean: float
    std: float | None
    """Sample standard deviation; None for one seed."""
    interval: Interval | None
    """See `method_interval`."""

    def __str__(self) -> str:
        return f"{self.mean:z.3f} {self.interval or NO_INTERVAL}"

    def record(self) -> dict[str, Any]:
        """As plain data."""
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        return {"mean": self.mean, "interval": ends, "std": self.std, "by_seed": dict(self.by_seed)}


def over_seeds(by_seed: Mapping[int, float], bounds: Range | None = None) -> OverSeeds:
    """Mean, spread and interval of a figure over training seeds, with the interval clipped to the bounds.

    >>> print(over_seeds({0: 0.9, 1: 1.0, 2: 0.95}, (0.0, 1.0)))
    0.950 [0.826, 1.000]
    """
    values = np.array([*by_seed.values()])
    interval = method_interval(values)
    if interval and bounds:
        interval = Interval(max(interval.low, bounds[0]), min(interval.high, bounds[1]))
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return OverSeeds(by_seed=dict(by_seed), mean=float(values.mean()), std=std, interval=interval)
