"""Intervals: Wilson for success rates, BCa bootstrap for mean rewards. The tests simulate the coverage of both.

The mean ± 1.96 standard errors and the percentile bootstrap cover too little: at n = 20 and a rate of 0.05, their "95 %"
intervals contain the true value 64 times in 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
RESAMPLES = 9_999
"""One less than a round number, so that the percentiles are order statistics."""

SMALLEST_SAMPLE = 30
"""With fewer values, a bootstrap knows too little about the tails to reach its level."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval: over repeated experiments, a share `level` of the intervals contains the true value."""

    low: float
    high: float
    level: float = LEVEL

    def __str__(self) -> str:
        return f"[{self.low:.3f}, {self.high:.3f}]"


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """The score interval of a success rate (Wilson 1927): the rates p that a test of size 1 − level does not reject.

    Args:
        successes: number of the `n` episodes that succeeded.
        n: number of episodes, at least one.
        level: coverage of the interval.

    Raises:
        ValueError: `successes` is not between 0 and `n`, or `n` is 0.

    >>> print(wilson(0, 10), wilson(169, 200))
    [0.000, 0.278] [0.788, 0.889]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes in {n} episodes: expected 0 ≤ successes ≤ episodes, and at least one episode")
    z = _NORMAL.inv_cdf((1 + level) / 2)
    rate = successes / n
    shrink = 1 + z**2 / n
    centre = (rate + z**2 / (2 * n)) / shrink
    half = z / shrink * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
    # At both ends the formula gives 0 and 1 up to rounding.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high, level)


def mean_interval(values: Sequence[float] | npt.NDArray[np.float64], seed: int, level: float = LEVEL) -> Interval | None:
    """The BCa bootstrap interval of a mean (Efron 1987), from 9,999 resamples.

    Percentiles of the resampled means, corrected for bias (z0) and skewness (the acceleration a; for a mean, the jackknife
    gives it in closed form). The result depends only on the values, not on their order, and on `seed`.

    Args:
        values: one per episode, shape [n].
        seed: seed of the resampling.
        level: coverage of the interval.

    Returns:
        The interval; None for fewer than 30 values, and a single point if all values are equal.

    Raises:
        ValueError: the values are not finite, or not a flat list.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError("a mean interval needs a flat list of finite values")
    if len(sample) < SMALLEST_SAMPLE:
        return None
    if np.ptp(sample) == 0:
        return Interval(float(sample[0]), float(sample[0]), level)
    means, observed = _resampled_means(sample, np.random.default_rng(seed))
    low, high = np.quantile(means, _bca_shares(means, observed, _acceleration(sample), level))
    return Interval(float(low), float(high), level)


def _resampled_means(sample: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], float]:
    """The means of the resamples, shape [9999], and of the sample itself, from the same sum so that ties are exact.

    The counts of the distinct values are multinomial. Sampling the counts is cheap, since rewards have few distinct values.
    """
    distinct, counts = np.unique(sample, return_counts=True)
    resampled = rng.multinomial(len(sample), counts / len(sample), size=RESAMPLES)
    means = np.vstack([counts, resampled]) @ distinct / len(sample)
    return means[1:], float(means[0])


def _acceleration(sample: npt.NDArray[np.float64]) -> float:
    """Σ d³ / (6 (Σ d²)^1.5) with the deviations d from the mean: a sixth of the skewness, divided by √n."""
    deviations = sample - sample.mean()
    return float((deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5))


def _bca_shares(means: npt.NDArray[np.float64], observed: float, acceleration: float, level: float) -> list[float]:
    """The two quantile levels of the bootstrap distribution at the ends of the interval; ties count half."""
    below = float((means < observed).mean() + (means == observed).mean() / 2)
    z0 = _NORMAL.inv_cdf(below)

    def share(tail: float) -> float:
        z = z0 + _NORMAL.inv_cdf(tail)
        return _NORMAL.cdf(z0 + z / (1 - acceleration * z))

    return [share((1 - level) / 2), share((1 + level) / 2)]
