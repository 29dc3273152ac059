"""One number across tasks, and across training seeds. These are two questions, and each has an interval of its own.

`aggregate` asks what *this checkpoint* is worth: its episodes vary; trained again, it would be another checkpoint.
`method_interval` asks what *this method* is worth: its training seeds vary, and no number of episodes makes up for few.
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
"""The caption of a table says which of the two its intervals answer."""

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
        random: what random play is worth on the task.
        reference: what the reference player, or optimal play, is worth.

    Raises:
        ValueError: where random play is worth as much as the reference: such a task tells no players apart.

    >>> normalised([0, 1, 3, -1], random=0, reference=2).tolist()
    [0.0, 0.5, 1.5, -0.5]
    """
    if reference == random:
        raise ValueError(f"cannot normalise: random play and the reference are both worth {reference}")
    scores: Floats = (np.asarray(rewards, dtype=np.float64) - random) / (reference - random)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A checkpoint over all tasks. Every task weighs the same, however many episodes it has."""

    tasks: int
    mean: float
    mean_interval: Interval | None
    iqm: float
    """Interquartile mean: that of the middle half of all scores, which a few extreme episodes do not move."""
    iqm_interval: Interval | None


def aggregate(scores: Mapping[str, Scores], seed: int, level: float = LEVEL) -> Aggregate:
    """Mean and interquartile mean over all tasks, each with a stratified bootstrap (Agarwal et al. 2021, arXiv 2108.13264).

    Percentile intervals over 9,999 resamples. Episodes are drawn anew within their own task: tasks are chosen, not
    sampled, so the intervals answer for this checkpoint on these tasks.

    Args:
        scores: per task, the normalised scores of its episodes.
        seed: of the resampling.
        level: the wanted coverage.

    Returns:
        Without intervals where any task has fewer than 30 episodes.

    Raises:
        ValueError: for no tasks, or scores that are not flat lists of finite numbers.
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
    """How often each distinct value of a task comes in as many draws with replacement; R resamples, shape [R, values]."""
    return rng.multinomial(counts.sum(), counts / counts.sum(), size=ROUND)


def _percentile_interval(estimates: Floats, level: float) -> Interval:
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high, level)


def _estimates(distinct: Sequence[Floats], drawn: Sequence[Counts]) -> Floats:
    """Mean and interquartile mean of R resamples, shape [2, R].

    Args:
        distinct: the distinct values of each task, shape [values] per task.
        drawn: how often each of them was drawn, shape [R, values] per task.
    """
    values = np.concatenate(distinct)
    weights = np.hstack([counts / (counts.sum(axis=1, keepdims=True) * len(drawn)) for counts in drawn])
    order = np.argsort(values)
    values, weights = values[order], weights[:, order]
    # What of each value's weight lies between the first and the third quartile; half of all weight does.
    middle = np.diff(np.clip(weights.cumsum(axis=1), 0.25, 0.75), axis=1, prepend=0.25)
    return np.stack([weights @ values, 2 * middle @ values])


def method_interval(scores: Mapping[int, Scores], level: float = LEVEL) -> Interval | None:
    """The t interval of a method's mean score, from the means of its training seeds; it answers for this method.

    Episodes of one training run resemble each other, so the seed means, not the episodes, are the sample: their spread
    holds both the luck of training and that of the episodes. It takes the seed means to be about normal; where some runs
    collapse and most do not, even this is too narrow. Resampling whole seeds covers 0.83 at 5 seeds and 0.74 at 3.

    Args:
        scores: per training seed, the scores of its episodes, or one aggregate score; every seed weighs the same.
        level: the wanted coverage.

    Returns:
        None under 3 seeds; around the mean of the seed means.

    Raises:
        ValueError: for no seeds, or scores that are not flat lists of finite numbers.
    """
    means = np.array([sample.mean() for sample in _samples(scores)])
    if len(means) < FEWEST_SEEDS:
        return None
    half = _student_t(len(means) - 1, level) * means.std(ddof=1) / math.sqrt(len(means))
    return Interval(float(means.mean() - half), float(means.mean() + half), level)


def _student_t(degrees: int, level: float) -> float:
    """The t with P(|T| ≤ t) = level. With T = √ν tan θ, the density of θ is proportional to cos^(ν − 1) θ."""
    theta = np.linspace(0, math.pi / 2, 20_001)
    density = np.cos(theta) ** (degrees - 1)
    below = np.concatenate([np.zeros(1), (density[1:] + density[:-1]).cumsum()])
    return math.sqrt(degrees) * math.tan(np.interp(level * below[-1], below, theta))
