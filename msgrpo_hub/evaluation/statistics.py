"""Intervals of means over episodes. The tests measure how often each contains the true mean.

Success rates and rewards of 0 or 1 have Wilson's interval, other returns a studentised bootstrap. A sample in which nearly all
values are equal tells a bootstrap nothing about rare values: BCa covers 0.36 at n = 30 where 4 % of rewards are negative. Such a
sample has an interval for bounded means, which needs the smallest and the largest possible return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
RESAMPLES = 9_999
"""One less than a round number, so that the percentiles are order statistics."""

SMALLEST_SAMPLE = 30
"""With fewer values, a bootstrap knows too little about the tails to reach its level."""

FEWEST_OTHERS = 6
"""With fewer values that differ from the most frequent one, a sample is degenerate: its bootstrap says little."""

RULES = WILSON, BOOTSTRAP, BETTING = "wilson", "studentised bootstrap", "betting on the return range"
"""The rules of intervals, as `Interval.rule` names them."""

ROUNDING = 1e-9
"""How far a value may lie outside its bounds: sums of floats differ in their last digits."""

Range = tuple[float, float]
"""The smallest and the largest possible value."""

Floats = npt.NDArray[np.float64]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval: over repeated experiments, a share `level` of the intervals contains the true value."""

    low: float
    high: float
    level: float = LEVEL
    rule: str = field(default=WILSON, compare=False)
    """How it was made."""

    def __str__(self) -> str:
        return f"[{self.low:z.3f}, {self.high:z.3f}]"


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


def mean_interval(
    values: Sequence[float] | npt.NDArray[np.float64],
    seed: int,
    level: float = LEVEL,
    bounds: Range | None = None,
    boards: Sequence[int] | None = None,
) -> Interval | None:
    """The interval of a mean, by the rule that covers for such values.

    Values of 0 and 1 have Wilson's interval, unless the bounds say that other values are possible. Other values have a
    studentised bootstrap if at least `FEWEST_OTHERS` of them differ from the most frequent one, else `betting` on the bounds.
    The result depends only on the values, not on their order, and on `seed`.

    Args:
        values: one per episode, shape [n].
        seed: seed of the resampling.
        level: coverage of the interval.
        bounds: the smallest and the largest possible value, if known (see `games.game.return_range`).
        boards: the seed of each episode's board. Episodes on one board are not independent: their mean counts as one value.

    Returns:
        The interval; its width is never 0. None for fewer than 30 values other than 0 and 1, and for nearly equal ones without
        bounds.

    Raises:
        ValueError: the values are not finite, not a flat list, or outside the bounds.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError("a mean interval needs a flat list of finite values")
    if bounds and sample.size and (sample.min() < bounds[0] - ROUNDING or sample.max() > bounds[1] + ROUNDING):
        raise ValueError(f"a mean interval got values from {sample.min()} to {sample.max()}, expected {bounds[0]} to {bounds[1]}")
    sample = sample if boards is None else board_means(sample, boards)
    if sample.size and bounds in (None, (0.0, 1.0)) and np.isin(sample, (0, 1)).all():
        return wilson(int(sample.sum()), len(sample), level)
    if len(sample) < SMALLEST_SAMPLE:
        return None
    if not degenerate(sample):
        return _studentised(sample, seed, level, bounds or (-np.inf, np.inf))
    return betting(sample, bounds, level) if bounds and np.isfinite(bounds).all() else None


def board_means(values: Floats, boards: Sequence[int]) -> Floats:
    """The mean of the values of each board, shape [boards]."""
    _, board, counts = np.unique(np.asarray(boards), return_inverse=True, return_counts=True)
    means: Floats = np.bincount(board, values) / counts
    return means


def degenerate(sample: Floats) -> bool:
    """Whether fewer than `FEWEST_OTHERS` values differ from the most frequent one."""
    _, counts = np.unique(sample, return_counts=True)
    return bool(counts.sum() - counts.max() < FEWEST_OTHERS)


def _studentised(sample: Floats, seed: int, level: float, bounds: Range) -> Interval:
    """The bootstrap-t interval (Efron and Tibshirani 1993, §12.5), from 9,999 resamples; it does not leave the bounds.

    The quantiles are those of (resampled mean − mean) / resampled standard error. The counts of the distinct values are
    multinomial. Sampling the counts is cheap, since rewards have few distinct values.
    """
    distinct, counts = np.unique(sample, return_counts=True)
    mean = float(distinct @ counts) / len(sample)
    deviations = distinct - mean
    shares = np.random.default_rng(seed).multinomial(len(sample), counts / len(sample), size=RESAMPLES) / len(sample)
    shifts = shares @ deviations
    spreads = np.sqrt(np.maximum(shares @ deviations**2 - shifts**2, 0.0))
    spread = float(np.sqrt(counts @ deviations**2 / len(sample)))
    ratios = shifts / np.maximum(spreads, 1e-9 * spread)  # a resample of equal values counts as far away
    low, high = mean - spread * np.quantile(ratios, [(1 + level) / 2, (1 - level) / 2])
    return Interval(max(float(low), bounds[0]), min(float(high), bounds[1]), level, BOOTSTRAP)


def betting(sample: Floats, bounds: Range, level: float = LEVEL) -> Interval:
    """An interval for the mean of bounded values that covers at every n (Waudby-Smith and Ramdas 2024, JRSS B 86).

    Whoever bets that the mean is above m stakes a share u of the capital on each value. If the mean is m, the expected capital
    stays 1, so it reaches 2 / (1 − level) with a probability of at most (1 − level) / 2. The low end is the largest m at which
    it does; the high end comes from the opposite bets. The capital is a mean over constant stakes: their grid of bets.

    Args:
        sample: shape [n].
        bounds: the smallest and the largest possible value.
        level: coverage of the interval.

    >>> print(betting(np.zeros(50), (0.0, 1.0)))
    [0.000, 0.080]
    """
    low, high = bounds
    scaled = (sample - low) / (high - low)
    ends = low + (high - low) * _lower_end(scaled, level), high - (high - low) * _lower_end(1 - scaled, level)
    return Interval(*ends, level, BETTING)


_STAKES = np.linspace(0.05, 1.0, 20)
_WEIGHTS = np.append(np.full(19, 0.5 / 19), 0.5)
"""Half of the capital is staked whole each time, which is best where all values are equal."""


def _lower_end(sample: Floats, level: float) -> float:
    """The largest mean m that the bets refute, by bisection: the capital falls with m. The sample lies in [0, 1]."""
    distinct, counts = np.unique(np.clip(sample, 0.0, 1.0), return_counts=True)
    refuted, kept = 0.0, 1.0
    for _ in range(50):
        m = (refuted + kept) / 2
        with np.errstate(divide="ignore"):  # the whole stake is lost on a value of 0
            logs = np.log1p(np.outer(_STAKES, distinct / m - 1)) @ counts + np.log(_WEIGHTS)
        won = np.logaddexp.reduce(logs) >= np.log(2 / (1 - level))
        refuted, kept = (m, kept) if won else (refuted, m)
    return refuted
