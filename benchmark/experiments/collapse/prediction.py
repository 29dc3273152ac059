"""When a run collapsed, and how well a metric tells before that it will."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Floats = npt.NDArray[np.float64]

TOGETHER = 3
"""Updates whose median return is compared, so that one bad update is no collapse."""
LEARNED = 0.2
"""Least return above that of the first updates from which a run can collapse."""
RESAMPLES = 1000


def collapse_of(returns: Sequence[float]) -> int | None:
    """The update at which a run lost half of what it had learned, counted from 0; None if it never did.

    What it has learned is the highest median return of three updates so far, above that of the first three. It collapses at an
    update that lost half of it, if one of the two after it did too.

    >>> collapse_of([0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.3, 0.1, 0.1, 0.1])
    7
    >>> collapse_of([0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.1, 0.4, 0.4, 0.4]) is None
    True
    """
    medians = np.median(sliding_window_view(np.array(returns), TOGETHER), axis=1)
    learned = np.maximum.accumulate(medians) - medians[0]
    half = medians[0] + learned / 2
    lost = (learned >= LEARNED) & (medians < half) & (np.array(returns[: len(medians)]) < half)
    return int(lost.argmax()) if lost.any() else None


class Run(NamedTuple):
    """A run up to its collapse."""

    metrics: Mapping[str, Sequence[float]]
    """Of every update, also after the collapse."""
    collapse: int | None
    reward: float = 0.0
    """On the test boards, of the last adapter."""


def area(runs: Sequence[Run], metric: str, ahead: int) -> float | None:
    """How well a metric tells whether a run collapses in the next `ahead` updates: the area under the ROC curve.

    It is the probability that the metric is higher in an update that is followed by a collapse than in one that is not: 0.5 if
    it says nothing, 0 if it is always lower. Updates from the collapse on do not count. None without updates of both kinds.
    """
    found = _areas(runs, metric, ahead, np.ones((1, len(runs))))
    return float(found[0]) if len(found) else None


def area_with_interval(runs: Sequence[Run], metric: str, ahead: int) -> str:
    """The area and its 95 % interval, by a bootstrap over runs."""
    found = area(runs, metric, ahead)
    if found is None:
        return "–"
    rng, count = np.random.default_rng(0), len(runs)
    times = np.array([np.bincount(rng.integers(0, count, count), minlength=count) for _ in range(RESAMPLES)])
    low, high = np.quantile(_areas(runs, metric, ahead, times), [0.025, 0.975])
    return f"{found:.2f} [{low:.2f}, {high:.2f}]"


def _areas(runs: Sequence[Run], metric: str, ahead: int, times: Floats) -> Floats:
    """The area of each sample of the runs, where it has updates of both kinds.

    Args:
        runs: N runs.
        metric: its name.
        ahead: updates.
        times: (samples, N) how often a sample has each run.
    """
    ends = [len(run.metrics[metric]) if run.collapse is None else run.collapse for run in runs]
    starts = [end if run.collapse is None else max(0, end - ahead) for run, end in zip(runs, ends, strict=True)]
    values = [np.array(run.metrics[metric]) for run in runs]
    others = [of_run[:start] for of_run, start in zip(values, starts, strict=True)]
    before = [of_run[start:end] for of_run, start, end in zip(values, starts, ends, strict=True)]
    higher = np.array([[_higher(a, b) for b in others] for a in before])  # (N, N) pairs, equal ones by half
    pairs = (times @ [len(a) for a in before]) * (times @ [len(b) for b in others])
    won: Floats = ((times @ higher) * times).sum(1)
    return won[pairs > 0] / pairs[pairs > 0]


def _higher(before: Floats, others: Floats) -> float:
    difference = np.subtract.outer(before, others)
    return float(np.sum(difference > 0) + 0.5 * np.sum(difference == 0))
