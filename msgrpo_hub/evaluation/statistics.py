"""Intervals: Wilson for success rates, BCa bootstrap for mean rewards. Both are simulated for coverage in the tests.

The usual mean ± 1.96 standard errors and the percentile bootstrap miss: at n = 20 and a rate of 0.05 their "95 %"
intervals hold the truth 64 times in 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
RESAMPLES = 9_999
"""One less than a round number, so that the wanted percentiles are order statistics."""

SMALLEST_SAMPLE = 30
"""Under this a bootstrap knows too little about the tails to promise its level."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval: over repeated experiments, a share `level` of such intervals holds the true value."""

    low: float
    high: float
    level: float = LEVEL

    def __str__(self) -> str:
        return f"[{self.low:.3f}, {self.high:.3f}]"


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """The score interval of a success rate (Wilson 1927): the rates p that a test of size 1 − level does not reject.

    Args:
        successes: how many of the `n` episodes succeeded.
        n: the number of episodes, at least one.
        level: the wanted coverage.

    Raises:
        ValueError: for a count that is no count of `n` episodes.

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
    # At the ends of the range the formula gives exactly 0 and 1, up to rounding.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high, level)


def mean_interval(values: Sequence[float] | npt.NDArray[np.float64], seed: int, level: float = LEVEL) -> Interval | None:
    """The BCa bootstrap interval of a mean (Efron 1987), by 9,999 resamples.

    Percentiles of the resampled means, moved for bias (z0) and for skewness (the acceleration a; for a mean the jackknife
    gives it in closed form). Neither the order of the values nor anything but `seed` changes the result.

    Args:
        values: one per episode, shape [n].
        seed: of the resampling.
        level: the wanted coverage.

    Returns:
        None under 30 values; a single point where all values are equal.

    Raises:
        ValueError: for values that are not finite, or not one list.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError("a mean interval needs one flat list of finite values")
    if len(sample) < SMALLEST_SAMPLE:
        return None
    if np.ptp(sample) == 0:
        return Interval(float(sample[0]), float(sample[0]), level)
    means, observed = _resampled_means(sample, np.random.default_rng(seed))
    low, high = np.quantile(means, _bca_shares(means, observed, _acceleration(sample), level))
    return Interval(float(low), float(high), level)


def _resampled_means(sample: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], float]:
    """The means of the resamples, shape [9999], and of the sample itself, by the same sum so that ties are exact.

    How often each distinct value is drawn is multinomial; rewards have few distinct values, so this is the cheap way.
    """
    distinct, counts = np.unique(sample, return_counts=True)
    drawn = rng.multinomial(len(sample), counts / len(sample), size=RESAMPLES)
    means = np.vstack([counts, drawn]) @ distinct / len(sample)
    return means[1:], float(means[0])


def _acceleration(sample: npt.NDArray[np.float64]) -> float:
    """Σ d³ / (6 (Σ d²)^1.5), d the deviations from the mean: a sixth of the skewness, over √n."""
    deviations = sample - sample.mean()
    return float((deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5))


def _bca_shares(means: npt.NDArray[np.float64], observed: float, acceleration: float, level: float) -> list[float]:
    """The two shares of the bootstrap distribution that are the ends of the interval; ties count half."""
    below = float((means < observed).mean() + (means == observed).mean() / 2)
    z0 = _NORMAL.inv_cdf(below)

    def share(tail: float) -> float:
        z = z0 + _NORMAL.inv_cdf(tail)
        return _NORMAL.cdf(z0 + z / (1 - acceleration * z))

    return [share((1 - level) / 2), share((1 + level) / 2)]
