"""What a paired comparison can find: the smallest effect for its number of pairs, and the number of pairs for an effect.

Both are those of the test whose verdict is shown: the exact sign-flip test (for success McNemar's) under the strictest step of
Holm's correction, where p must be under SIZE / family. An effect needs a model of the pairs it would show in:

- Success: player a keeps its rate, b's rate differs by the effect, and their correlation is the one observed, as far as the two
  rates allow it (0 if either never varies).
- Returns: the effect moves every difference; their spread about it, and so the correlation, is the one observed. Where most
  differences are 0, moving them all would be no chance of the game, and the effect gives b a gain on more of the boards instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SIZE = 0.05
"""The family-wise error rate: how often a family of comparisons of equal players may give any verdict."""

POWER = 0.8
"""The probability that an effect of the detectable size is found."""

EXPERIMENTS = 4_000
"""The number of simulated experiments for the power on returns."""

MOST_EXACT = 1_000
"""The largest number of pairs whose power is summed over all outcomes; beyond it, a normal approximation is as good."""

_NORMAL = NormalDist()

Power = Callable[[float], float]
"""Effect → the probability that the test finds it."""


def detectable(a: Floats, b: Floats, family: int, smallest_p: float) -> float | None:
    """The smallest effect, with the sign of the observed difference, that is found with probability `POWER`.

    If no effect of that sign can be found, it is the smallest of the other sign: a player that never fails cannot be beaten.

    Args:
        a: one value per seed of the baseline player, shape [n].
        b: values of the other player on the same seeds, shape [n].
        family: number of hypotheses in Holm's correction.
        smallest_p: the smallest p that the test can give for returns.

    Returns:
        The effect; None if none can be found, or if returns never differ, since nothing is known of their spread then.
    """
    sign = -1 if (b - a).mean() < 0 else 1
    size = SIZE / family
    for direction in (sign, -sign):
        power, largest = _model(a, b, direction, size, smallest_p)
        if (found := _smallest(power, largest)) is not None:
            return direction * found
    return None


def pairs_needed(a: Floats, b: Floats, family: int) -> int | None:
    """About how many pairs find a true difference as large as the observed one with probability `POWER`; None if it is 0.

    n = ((z_{size / 2} √E[d²] + z_{POWER} √Var[d]) / E[d])² for differences d, plus what a test on counts loses.
    """
    differences = b - a
    mean = abs(float(differences.mean()))
    if not mean:
        return None
    rough = _quantile(1 - SIZE / family / 2) * math.sqrt((differences**2).mean()) + _quantile(POWER) * float(differences.std())
    step = float(np.abs(differences[differences != 0]).min()) if _binary(a, b) else 0.0
    return math.ceil(((rough + math.sqrt(rough**2 + 4 * mean * step)) / (2 * mean)) ** 2)


def _binary(a: Floats, b: Floats) -> bool:
    return bool(np.isin([a, b], (0, 1)).all())


def _model(a: Floats, b: Floats, direction: int, size: float, smallest_p: float) -> tuple[Power, float]:
    """The power of an effect in a direction, and the largest effect that can occur."""
    differences, n = (b - a) * direction, len(a)
    if _binary(a, b):
        rate = float(a.mean()) if direction > 0 else 1 - float(a.mean())
        correlation = float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0
        return lambda effect: mcnemar_power(n, *discordant(rate, effect, correlation), size), 1 - rate
    sizes = np.abs(differences[differences != 0])
    if 2 * len(sizes) < n:
        return _power_of_more_gains(n, sizes, size), float(sizes.mean()) if len(sizes) else 0.0
    return _power_of_a_shift(differences, max(size - max(smallest_p, 2.0 ** (1 - n)), 0.0)), float(
        np.ptp(differences) + np.abs(differences).max()
    )


def _smallest(power: Power, largest: float) -> float | None:
    """The smallest effect with enough power, by bisection; None if the largest has too little."""
    if largest <= 0 or power(largest) < POWER:
        return None
    low, high = 0.0, largest
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def discordant(rate: float, effect: float, correlation: float) -> tuple[float, float]:
    """The probabilities that only a and that only b succeeds, for rates that differ by an effect.

    >>> discordant(0.5, 0.0, correlation=0.0), discordant(0.5, 0.25, correlation=1.0)
    ((0.25, 0.25), (0.0, 0.25))
    """
    other = min(rate + effect, 1.0)
    both = rate * other + correlation * math.sqrt(rate * (1 - rate) * other * (1 - other))
    both = min(max(both, rate + other - 1, 0.0), rate, other)
    return rate - both, other - both


def mcnemar_power(n: int, only_a: float, only_b: float, size: float) -> float:
    """The probability that McNemar's exact test on n pairs has p < size, and b is the better player.

    Args:
        n: number of pairs.
        only_a: probability that only a succeeds on a pair.
        only_b: probability that only b does.
        size: the level that p must be under.

    >>> round(mcnemar_power(50, 0.0, 0.2, 0.05), 2)
    0.95
    """
    either = float(min(only_a + only_b, 1.0))
    if either <= 0:
        return 0.0
    share = only_b / either
    if n > MOST_EXACT:
        shift, spread = n * only_b - n * only_a, math.sqrt(n * (either - (only_b - only_a) ** 2))
        return _NORMAL.cdf((shift - 1 - _quantile(1 - size / 2) * math.sqrt(n * either)) / spread) if spread else 1.0
    discordants = binomial(n, either)
    likely = np.flatnonzero(discordants > 1e-7)
    return float(sum(discordants[d] * binomial(int(d), share)[_needed(int(d), size) :].sum() for d in likely))


@lru_cache(maxsize=100_000)
def _needed(discordants: int, size: float) -> int:
    """How many of the discordant pairs b must win so that p < size; more than all of them if even that is not enough."""
    tails = 2 * binomial(discordants, 0.5)[::-1].cumsum()[::-1]
    return int(np.count_nonzero(tails >= size))


def binomial(n: int, p: float) -> Floats:
    """The probabilities of 0 … n successes, from log factorials, so that no count overflows; shape [n + 1]."""
    k, logs = np.arange(n + 1), _log_factorials(n)
    if p in (0.0, 1.0):
        return np.asarray(k == round(n * p), dtype=np.float64)
    chances: Floats = np.exp(logs[-1] - logs - logs[::-1] + k * math.log(p) + (n - k) * math.log1p(-p))
    return chances


@lru_cache(maxsize=2 * MOST_EXACT)
def _log_factorials(n: int) -> Floats:
    logs: Floats = np.concatenate([np.zeros(1), np.log(np.arange(1, n + 1)).cumsum()])
    return logs


def _power_of_more_gains(n: int, sizes: Floats, size: float) -> Power:
    """b gains on a share of the boards as much as the players differ somewhere; on the others they are equal players."""
    differ = len(sizes) / n

    def power(effect: float) -> float:
        gained = effect / float(sizes.mean())
        return mcnemar_power(n, (1 - gained) * differ / 2, gained + (1 - gained) * differ / 2, size)

    return power


def _power_of_a_shift(differences: Floats, size: float) -> Power:
    """Differences of n pairs from a population like the observed one, whose mean is the effect.

    The population is not known, only n of its differences. Each experiment therefore draws its own from the Bayesian bootstrap
    (Rubin 1981), scaled so that its variance is unbiased; with the observed differences in its place, an effect printed for 50
    pairs would be found too rarely.

    Sign flips of n differences d have a sum with variance Σ d² and kurtosis −2 Σ d⁴ / (Σ d²)²; its tail is an Edgeworth series.
    All experiments are drawn once, and moved as a whole: their sums of powers are polynomials of the effect.
    """
    n = len(differences)
    distinct, counts = np.unique(differences - differences.mean(), return_counts=True)
    distinct *= math.sqrt((n + 1) / max(n - 1, 1))
    rng = np.random.default_rng(0)
    populations = rng.dirichlet(counts, size=EXPERIMENTS)
    drawn = rng.multinomial(n, populations).astype(np.float64)
    means = populations @ distinct
    s1, s2, s3, s4 = (drawn @ distinct**power for power in (1, 2, 3, 4))

    def power(effect: float) -> float:
        shift = effect - means
        total, squares = s1 + n * shift, s2 + 2 * shift * s1 + n * shift**2
        fourths = s4 + 4 * shift * s3 + 6 * shift**2 * s2 + 4 * shift**3 * s1 + n * shift**4
        return float(np.mean(total / np.sqrt(squares) > _critical(squares, fourths, size)))

    return power


def _critical(squares: Floats, fourths: Floats, size: float) -> Floats:
    """The quantile of the standardised sum of sign flips, to the first term of Cornish and Fisher's expansion (1938)."""
    if not size:
        return np.full_like(squares, np.inf)
    z = _quantile(1 - size / 2)
    critical: Floats = z - 2 * fourths / squares**2 * (z**3 - 3 * z) / 24
    return critical


def _quantile(share: float) -> float:
    return _NORMAL.inv_cdf(share)
