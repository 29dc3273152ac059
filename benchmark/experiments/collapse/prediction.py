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


def area(runs: Sequence[Run], metric: str, ahead: int) -> float | None:
    """How well a metric tells whether a run collapses in the next `ahead` updates: the area under the ROC curve.

    It is the probability that the metric is higher in an update that is followed by a collapse than in one that is not: 0.5 if
    it says nothing, 0 if it is always lower. Updates from the collapse on do not count. None without updates of both kinds.
    """
    before, others = [], []
    for run in runs:
        values = list(run.metrics[metric])
        end = len(values) if run.collapse is None else run.collapse
        start = end if run.collapse is None else max(0, end - ahead)
        others += values[:start]
        before += values[start:end]
    if not before or not others:
        return None
    higher: Floats = np.subtract.outer(np.array(before), np.array(others))
    return float(np.mean((higher > 0) + 0.5 * (higher == 0)))


def area_with_interval(runs: Sequence[Run], metric: str, ahead: int) -> str:
    """The area and its 95 % interval, by a bootstrap over runs."""
    found = area(runs, metric, ahead)
    if found is None:
        return "–"
    rng = np.random.default_rng(0)
    drawn = [area([runs[k] for k in rng.integers(0, len(runs), len(runs))], metric, ahead) for _ in range(RESAMPLES)]
    low, high = np.quantile([value for value in drawn if value is not None], [0.025, 0.975])
    return f"{found:.2f} [{low:.2f}, {high:.2f}]"
