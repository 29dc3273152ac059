"""Two players on the same seeds: the difference b − a with its interval, its test and the smallest detectable effect.

The same seed gives both players the same board, so the effect of the board cancels in the difference. The tests are exact, or
Monte Carlo versions of exact tests: rewards have few distinct values, for which a normal approximation misleads.
Sign flips test whether the players are exchangeable, so they also reject equal means of another shape, such as rare large gains.
A verdict is about means: the interval must not include 0 either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from msgrpo_hub.evaluation.statistics import RESAMPLES, WILSON, Floats, Interval, Range, mean_interval, wilson

SIZE = 0.05
"""The family-wise error rate: how often a family of comparisons of equal players gives any verdict."""
POWER = 0.8
"""The probability that an effect of the detectable size is found."""
MOST_OUTCOMES = 2**14
"""The largest number of sign assignments that is enumerated; beyond it, 9,999 are sampled."""
EXPERIMENTS = 4_000
"""Simulated experiments for the power on returns."""

Values = Sequence[float] | npt.NDArray[Any]
"""One number per episode, in the order of the seeds, shape [n]; success is 0 or 1."""
TaskValues = tuple[Values, Values, Values, Values]
"""The rewards of a and of b, then their successes, all in the same order of seeds."""
Verdict = Literal["better", "worse", "inconclusive"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Player b compared with player a on n pairs of episodes."""

    n: int
    difference: float
    """Mean of b − a."""
    interval: Interval | None
    """95 % for this one difference: Newcombe's interval if values can only be 0 or 1, else `mean_interval`."""
    p: float
    """Two-sided p of the sign-flip test; for success this is McNemar's exact test."""
    p_adjusted: float = 1.0
    """p with Holm's correction over a family of hypotheses; p itself for a single comparison."""
    family: int = 1
    correlation: float | None
    """Pearson's r of a and b over the seeds; None if either never varies."""
    detectable: float | None
    """The smallest difference that n pairs find with probability 0.8 in this family (see `detectable`); None if none."""
    verdict: Verdict = "inconclusive"
    """Whether b is better than a by `p_adjusted` and the interval. "inconclusive" does not mean "equal"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskComparison:
    """Two players on one task."""

    task: str
    rewards: Comparison
    success: Comparison
    """The same object as `rewards` if every reward is the success: one hypothesis, not two."""
    not_playing: tuple[str, ...] = ()
    """Players with under half of their replies parsed: the verdict is mostly about doing nothing."""


def compare_tasks(tasks: Mapping[str, TaskValues], seed: int, bounds: Mapping[str, Range] | None = None) -> list[TaskComparison]:
    """Compares two players on every task, with Holm's correction over all hypotheses. Seed and errors as for `compare_paired`."""
    pairs: dict[tuple[str, str], tuple[Values, Values, Range | None]] = {}
    for task, (a, b, success_a, success_b) in tasks.items():
        pairs[task, "success"] = (success_a, success_b, (0.0, 1.0))
        if not (np.array_equal(a, success_a) and np.array_equal(b, success_b)):
            pairs[task, "rewards"] = (a, b, (bounds or {}).get(task))
    alone = [compare_paired(a, b, seed, bounds=own, family=len(pairs)) for a, b, own in pairs.values()]
    family = dict(zip(pairs, with_verdicts(alone), strict=True))
    return [
        TaskComparison(task=task, rewards=family.get((task, "rewards"), family[task, "success"]), success=family[task, "success"])
        for task in tasks
    ]


def compare_paired(a: Values, b: Values, seed: int, bounds: Range | None = None, family: int = 1) -> Comparison:
    """Compares player b with the baseline a by one number per episode, reward or success, in the same order of seeds.

    `seed` is for the resampling. Without `bounds`, the smallest and the largest possible value, nearly equal differences have no
    interval. `family` is the number of hypotheses that are tested together, for `detectable`; see `with_verdicts` for their p.
    Raises `ValueError` for lists that differ in length or are empty, and for values that are not finite.
    """
    # Sums of the same rewards in another order must count as equal.
    first, second = (np.round(np.array(values, dtype=np.float64), 9).astype(np.float64) for values in (a, b))
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise ValueError(f"a paired comparison needs two flat lists of equal length, got shapes {first.shape} and {second.shape}")
    differences = np.round(second - first, 9)
    if not np.isfinite(differences).all():
        raise ValueError("a paired comparison needs finite values")
    if bounds in (None, (0.0, 1.0)) and np.isin([first, second], (0, 1)).all():
        cells = [((first == one) & (second == other)).sum() for one in (1, 0) for other in (1, 0)]
        interval: Interval | None = newcombe(*map(int, cells))
    else:
        low, high = bounds or (0.0, math.inf)
        interval = mean_interval(second - first, seed, bounds=(low - high, high - low))
    found = Comparison(
        n=len(differences),
        difference=float(differences.mean()),
        interval=interval,
        p=sign_flip(differences, seed),
        family=family,
        correlation=float(np.corrcoef(first, second)[0, 1]) if np.ptp(first) and np.ptp(second) else None,
        detectable=detectable(first, second, family),
    )
    return with_verdicts([found])[0]


def newcombe(both: int, only_a: int, only_b: int, neither: int) -> Interval:
    """The interval of a difference of two success rates on the same seeds (Newcombe 1998, paired data, method 10).

    The two Wilson intervals are combined as a root of squares, reduced by the correlation φ of a and b. A positive φ gets a
    continuity correction. The arguments are the numbers of seeds on which both players, only a, only b and neither succeeded.

    >>> print(newcombe(40, 3, 7, 0), newcombe(50, 0, 0, 0))
    [-0.050, 0.212] [-0.071, 0.071]
    """
    n = both + only_a + only_b + neither
    a, b = wilson(both + only_a, n), wilson(both + only_b, n)
    rate_a, rate_b = (both + only_a) / n, (both + only_b) / n
    covariance = both * neither - only_a * only_b
    spread = math.sqrt((both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither))
    phi = (max(covariance - n / 2, 0) if covariance > 0 else covariance) / spread if spread else 0.0
    x, y = np.array([rate_b - b.low, a.high - rate_a]), np.array([b.high - rate_b, rate_a - a.low])
    below, above = (math.sqrt(u**2 - 2 * phi * u * v + v**2) for u, v in (x, y))
    return Interval(float(rate_b - rate_a - below), float(rate_b - rate_a + above))


def sign_flip(differences: Values, seed: int) -> float:
    """The two-sided p of a mean difference: how often random signs give a mean as far from zero (Fisher 1935, §21).

    If the players are equal, the two results of a pair are exchangeable, so each difference is as likely with the other
    sign. p is exact for few or coarse differences (any success rates, where it is McNemar's exact test); else
    (k + 1) / (m + 1) from m samples, never 0. Differences of 0 have no effect; `seed` is for the samples.

    >>> round(sign_flip([1.0, 2.0, 3.0, 0.0], seed=0), 9)  # only + + + and − − − are as far from zero: 2 of 8
    0.25
    """
    values = np.asarray(differences, dtype=np.float64)
    sizes, counts = np.unique(np.abs(values[values != 0]), return_counts=True)
    threshold = abs(float(values.sum())) - 1e-9 * float(sizes @ counts)  # sums that differ only by rounding are ties
    if math.prod((counts + 1).tolist()) > MOST_OUTCOMES:
        signs = 2 * np.random.default_rng(seed).binomial(counts, 0.5, size=(RESAMPLES, len(counts))) - counts
        return (int((np.abs(signs @ sizes) >= threshold).sum()) + 1) / (RESAMPLES + 1)
    from scipy.stats import binom

    sums, chances = np.zeros(1), np.ones(1)
    for size, count in zip(sizes, counts, strict=True):  # differences of equal size are exchangeable
        sums = np.add.outer(sums, size * np.arange(-count, count + 1, 2)).ravel()
        chances = np.multiply.outer(chances, binom.pmf(np.arange(count + 1), count, 0.5)).ravel()
    return min(1.0, float(chances[np.abs(sums) >= threshold].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p (Holm 1979): in families without any difference, any of them is under SIZE with probability at most SIZE.

    The i-th smallest of m is multiplied by m − i + 1. The results are made monotone and capped at 1.

    >>> [round(p, 3) for p in holm([0.04, 0.01, 0.03])]
    [0.06, 0.03, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order, adjusted = np.argsort(p), np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return list(map(float, adjusted))


def with_verdicts(family: Sequence[T]) -> list[T]:
    """Comparisons with `p_adjusted` and `verdict`, after Holm's correction over all of them. Tests need no interval."""
    compared, found = cast(Sequence[Any], family), []
    for one, p in zip(compared, holm([one.p for one in compared]), strict=True):
        unclear = one.interval and one.interval.rule != WILSON and one.interval.low <= 0 <= one.interval.high
        verdict = "inconclusive" if p >= SIZE or unclear else "better" if one.difference > 0 else "worse"
        found.append(replace(one, p_adjusted=p, verdict=verdict))
    return found


@dataclass(frozen=True, slots=True)
class Rank:
    """The places that a player may have."""

    best: int
    """1 plus the number of players that are better by the test."""
    worst: int
    """The number of players, minus the players that are worse by the test."""

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks_of(rewards: Sequence[Floats]) -> list[Rank]:
    """The places that paired tests leave open to each player, with Holm's correction over all pairs.

    All true places are in these ranges with probability 0.95 (Mogstad, Romano, Shaikh and Wilhelm 2024, Inference for ranks).
    `rewards` has one array per player, in the same order of seeds, shape [n].

    >>> best, also_good, worst = np.ones(30), np.r_[np.ones(29), 0], np.zeros(30)
    >>> [str(rank) for rank in ranks_of([also_good, worst, best])]
    ['1–2', '3', '1–2']
    """
    pairs, p_values = list(combinations(range(len(rewards)), 2)), []
    for a, b in pairs:
        differences = np.round(rewards[b] - rewards[a], 9)
        total, squares = float(differences.sum()) ** 2, float((differences**2).sum())
        # Two bounds on p decide most pairs without a simulation: p ≥ 7/32 if (Σ d)² ≤ Σ d² (Hollom and Portier 2023), and
        # p ≤ 2 exp(−(Σ d)² / (2 Σ d²)) (Hoeffding 1963), used where it is smaller than any simulated p.
        bound = 1.0 if total <= squares else 2 * math.exp(-total / (2 * squares))
        p_values.append(bound if bound == 1.0 or bound < 1 / (RESAMPLES + 1) else sign_flip(differences, seed=0))
    better, worse = [0] * len(rewards), [0] * len(rewards)
    for (a, b), p in zip(pairs, holm(p_values), strict=True):
        if p < SIZE:
            winner, loser = (b, a) if rewards[b].mean() > rewards[a].mean() else (a, b)
            worse[winner] += 1
            better[loser] += 1
    return [Rank(1 + above, len(rewards) - below) for above, below in zip(better, worse, strict=True)]


# ---- power


def detectable(a: Floats, b: Floats, family: int) -> float | None:
    """The smallest effect, with the sign of the observed difference, that the sign-flip test finds with probability `POWER`.

    The test has the strictest level of Holm's correction: p < SIZE / family. For success, player a keeps its rate, b's differs by
    the effect, and their correlation is the observed one as far as the two rates allow it (0 if either never varies). For
    returns, the effect shifts every difference, whose spread is the observed one. If most differences are 0, the effect gives b
    a gain of the mean size on more of the boards instead.

    The effect has the other sign if none of the observed sign can be found: a player that never fails cannot be beaten. None if
    no effect can be found, or if returns never differ.
    """
    sign, size, n = -1 if (b - a).mean() < 0 else 1, SIZE / family, len(a)
    for direction in (sign, -sign):
        differences = (b - a) * direction
        different = np.abs(differences[differences != 0])
        if np.isin([a, b], (0, 1)).all():
            rate = float(a.mean()) if direction > 0 else 1 - float(a.mean())
            power, largest = _success_power(rate, a, b, size), 1 - rate
        elif 2 * len(different) < n:
            power, largest = _gain_power(n, different, size), float(different.mean()) if len(different) else 0.0
        else:
            smallest_p = max(1 / (RESAMPLES + 1), 2.0 ** (1 - n))
            power = _shift_power(differences, max(size - smallest_p, 0.0))
            largest = float(np.ptp(differences) + np.abs(differences).max())
        if largest <= 0 or power(largest) < POWER:
            continue
        low, high = 0.0, largest
        for _ in range(14):  # bisection
            middle = (low + high) / 2
            low, high = (low, middle) if power(middle) >= POWER else (middle, high)
        return direction * high
    return None


def mcnemar_power(n: int, only_a: float, only_b: float, size: float) -> float:
    """The probability that McNemar's exact test on n pairs has p < size and b is the better player.

    `only_a` and `only_b` are the probabilities that only this player succeeds on a pair.

    >>> round(mcnemar_power(50, 0.0, 0.2, 0.05), 2)
    0.95
    """
    from scipy.stats import binom

    either = float(min(only_a + only_b, 1.0))
    if either <= 0:
        return 0.0
    discordant = np.arange(n + 1)
    needed = binom.isf(size / 2, discordant, 0.5) + 1  # wins of b: the fewest k with 2 P(X ≥ k) < size
    return float(binom.pmf(discordant, n, either) @ binom.sf(needed - 1, discordant, only_b / either))


def _success_power(rate: float, a: Floats, b: Floats, size: float) -> Callable[[float], float]:
    correlation = float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0

    def power(effect: float) -> float:
        other = min(rate + effect, 1.0)
        both = rate * other + correlation * math.sqrt(rate * (1 - rate) * other * (1 - other))
        both = min(max(both, rate + other - 1, 0.0), rate, other)
        return mcnemar_power(len(a), rate - both, other - both, size)

    return power


def _gain_power(n: int, sizes: Floats, size: float) -> Callable[[float], float]:
    """b gains the mean size of a difference on a share of the boards; on the others the players are equal."""

    def power(effect: float) -> float:
        gained = effect / float(sizes.mean())
        only_a = (1 - gained) * (len(sizes) / n) / 2
        return mcnemar_power(n, only_a, gained + only_a, size)

    return power


def _shift_power(differences: Floats, size: float) -> Callable[[float], float]:
    """Differences of n pairs from a population like the observed one, shifted to have the effect as their mean.

    Each experiment draws its own population from the Bayesian bootstrap (Rubin 1981), scaled so that its variance is unbiased:
    with the observed differences as the population, 50 pairs would promise too much. Sign flips of n differences d have a sum
    with variance Σ d² and kurtosis −2 Σ d⁴ / (Σ d²)²; its quantile is the first term of Cornish and Fisher's expansion (1938).
    All experiments are drawn once, and their sums of powers are polynomials of the shift.
    """
    n = len(differences)
    distinct, counts = np.unique(differences - differences.mean(), return_counts=True)
    distinct *= math.sqrt((n + 1) / max(n - 1, 1))
    rng = np.random.default_rng(0)
    populations = rng.dirichlet(counts, size=EXPERIMENTS)
    drawn = rng.multinomial(n, populations).astype(np.float64)
    means = populations @ distinct
    s1, s2, s3, s4 = (drawn @ distinct**power for power in (1, 2, 3, 4))
    z = NormalDist().inv_cdf(1 - size / 2) if size else math.inf

    def power(effect: float) -> float:
        shift = effect - means
        total, squares = s1 + n * shift, s2 + 2 * shift * s1 + n * shift**2
        fourths = s4 + 4 * shift * s3 + 6 * shift**2 * s2 + 4 * shift**3 * s1 + n * shift**4
        critical = z - 2 * fourths / squares**2 * (z**3 - 3 * z) / 24 if size else z
        return float(np.mean(total / np.sqrt(squares) > critical))

    return power
