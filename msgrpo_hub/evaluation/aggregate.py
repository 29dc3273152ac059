"""One number across tasks, and across training seeds. These are two questions with two intervals.

`aggregate` scores *this checkpoint*: the interval is over its episodes, and another training seed gives another checkpoint.
`method_interval` scores *this method*: the interval is over training seeds, and more episodes cannot replace seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.evaluation.statistics import LEVEL, SMALLEST_SAMPLE, Interval

THIS_CHECKPOINT = "this checkpoint: the interval is over episodes; the same training from another seed may lie outside it"
THIS_METHOD = "this method: the interval is over training seeds"
"""Captions of tables, which say what their intervals are over."""

FEWEST_SEEDS = 3

ROUNDS, ROUND = 11, 909
"""9,999 resamples, in rounds that need little memory."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Scores = Sequence[float] | npt.NDArray[Any]
"""One number per episode, shape [n]."""


def normalised(rewards: Scores, random: float, reference: float) -> Floats:
    """(reward − random) / (reference − random): 0 is random play, 1 the reference. Never clipped.

    Args:
        rewards: one per episode, shape [n].
        random: value of random play on the task.
        reference: value of the reference player, or of optimal play.

    Raises:
        ValueError: random play scores as much as the reference, so the task cannot tell players apart.

    >>> normalised([0, 1, 3, -1], random=0, reference=2).tolist()
    [0.0, 0.5, 1.5, -0.5]
    """
    if reference == random:
        raise ValueError(f"cannot normalise: random play and the reference both score {reference}")
    scores: Floats = (np.asarray(rewards, dtype=np.float64) - random) / (reference - random)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A checkpoint over all tasks. Every task has the same weight, whatever its number of episodes."""

    tasks: int
    mean: float
    mean_interval: Interval | None
    iqm: float
    """Interquartile mean: the mean of the middle half of all scores, robust to a few extreme episodes."""
    iqm_interval: Interval | None


def aggregate(scores: Mapping[str, Scores], seed: int, level: float = LEVEL) -> Aggregate:
    """Mean and interquartile mean over all tasks, each with a stratified bootstrap (Agarwal et al. 2021, arXiv 2108.13264).

    Percentile intervals over 9,999 resamples. Episodes are resampled within their own task. Tasks are fixed, not sampled,
    so the intervals hold for this checkpoint on these tasks.

    Args:
        scores: per task, the normalised scores of its episodes.
        seed: seed of the resampling.
        level: coverage of the intervals.

    Returns:
        The estimates; without intervals if any task has fewer than 30 episodes.

    Raises:
        ValueError: there are no tasks, or scores are not flat lists of finite numbers.
    """
    values, counts = zip(*(np.unique(sample, return_counts=True) for sample in _samples(scores)), strict=True)
    mean, iqm = _estimates(values, [count[None] for count in counts])[:, 0].tolist()
    of_mean = of_iqm = None
    if min(count.sum() for count in counts) >= SMALLEST_SAMPLE:
        rng = np.random.default_rng(seed)
        rounds = [_estimates(values, [_redraw(count, rng) for count in counts]) for _ in range(ROUNDS)]
        of_mean, of_iqm = (_percentile_interval(estimates, level) for estimates in np.hstack(rounds))
    return Aggregate(tasks=len(values), mean=mean, mean_interval=of_mean, iqm=iqm, iqm_interval=of_iqm)


def _samples(scores: Mapping[Any, Scores]) -> list[Floats]:
    samples = [np.asarray(sample, dtype=np.float64) for sample in scores.values()]
    if not samples or not all(sample.ndim == 1 and sample.size and np.isfinite(sample).all() for sample in samples):
        raise ValueError("expected scores in one or more groups, each a flat list of finite numbers")
    return samples


def _redraw(counts: Counts, rng: np.random.Generator) -> Counts:
    """Counts of each distinct value of a task in R resamples with replacement, shape [R, values]."""
    return rng.multinomial(counts.sum(), counts / counts.sum(), size=ROUND)


def _percentile_interval(estimates: Floats, level: float) -> Interval:
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high, level)


def _estimates(distinct: Sequence[Floats], resampled: Sequence[Counts]) -> Floats:
    """Mean and interquartile mean of R resamples, shape [2, R].

    Args:
        distinct: the distinct values of each task, shape [values] per task.
        resampled: counts of each distinct value in each resample, shape [R, values] per task.
    """
    values = np.concatenate(distinct)
    weights = np.hstack([counts / (counts.sum(axis=1, keepdims=True) * len(resampled)) for counts in resampled])
    order = np.argsort(values)
    values, weights = values[order], weights[:, order]
    # The part of each value's weight between the first and the third quartile, which hold half of all weight.
    middle = np.diff(np.clip(weights.cumsum(axis=1), 0.25, 0.75), axis=1, prepend=0.25)
    return np.stack([weights @ values, 2 * middle @ values])


def method_interval(means: Scores, level: float = LEVEL) -> Interval | None:
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
    (values,) = _samples({"seeds": means})
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
