"""Which metric announces that training will collapse, and how many updates ahead?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import NOTHING
from benchmark.experiments.experiment import Values
from benchmark.experiments.training import SERIES
from msgrpo_hub.evaluation.tables import markdown

AHEAD = (1, 2, 5, 10)
"""Updates."""
BEFORE, AFTER = 15, 5
"""The figure shows this many updates before and after a collapse."""
METRICS = (*SERIES[:5], "mutual_information", *SERIES[5:])
"""Metrics of the stored runs. The trainer does not record the mutual information of prompt and reply."""
NAMES = {name: name.replace("_", " ") for name in METRICS}
TOGETHER = 3
"""Number of updates whose median return counts, so that one bad update is no collapse."""
LEARNED = 0.2
"""A run must gain this much return over its first updates before it can collapse."""
RESAMPLES = 1000

Floats = npt.NDArray[np.float64]


class Run(NamedTuple):
    """A run and its collapse."""

    metrics: Mapping[str, Sequence[float]]
    """Metric → a value per update, also after the collapse."""
    collapse: int | None
    reward: float = 0.0
    """Mean test reward of the last adapter."""


class Collapse(Comparison):
    """The page counts collapses and says how well each metric predicts them."""

    def runs_by_arm(self, rows: Mapping[str, Values]) -> dict[str, list[Run]]:
        """Arm → its runs."""
        found: dict[str, list[Run]] = {}
        for arm, seeds in self.arms(rows).items():
            for values in seeds.values():
                metrics = values["metrics"]
                run = Run(metrics, collapse_of(metrics["composite_return"]), float(np.mean(values["test_rewards"])))
                found.setdefault(arm, []).append(run)
        return found

    def all_runs(self, rows: Mapping[str, Values]) -> list[Run]:
        return [run for runs in self.runs_by_arm(rows).values() for run in runs]

    def headline(self, rows: Mapping[str, Values]) -> str:
        runs = self.all_runs(rows)
        best = next(iter(_by_area(runs)), None)
        if best is None:
            return ""
        return (
            f"{_fate(runs)} Of {len(METRICS)} metrics the {NAMES[best]} predicts it best: the area under the ROC curve is"
            f" {area_with_interval(runs, best, 1)} one update ahead and {area_with_interval(runs, best, 10)} within ten updates;"
            " 0.5 is chance."
        )

    def answer(self, rows: Mapping[str, Values]) -> str:
        runs = self.all_runs(rows)
        found = "; ".join(f"{NAMES[name]} {area_with_interval(runs, name, 1)}" for name in _by_area(runs))
        return (
            "A run collapses if it loses half of its gain for more than one update. The area under the ROC curve is the"
            " probability that a metric is higher in the updates before a collapse than in other updates, over all runs up to"
            " their collapse. Intervals are a bootstrap over runs.\n\n"
            f"- **Learning rates that are too high.** {_fate(runs)} One update ahead, the areas are (0.5 is chance; below it, a"
            f" low value is the sign): {found or NOTHING}."
        )

    def tables(self, rows: Mapping[str, Values]) -> str:
        arms = [
            [arm, str(len(runs)), ", ".join(str(run.collapse + 1) if run.collapse is not None else "none" for run in runs)]
            for arm, runs in self.runs_by_arm(rows).items()
        ]
        runs = self.all_runs(rows)
        areas = [[NAMES[name], *(area_with_interval(runs, name, ahead) for ahead in AHEAD)] for name in METRICS]
        head = ["metric", *(f"within {ahead} update{'s' * (ahead > 1)}" for ahead in AHEAD)]
        return f"{markdown(['arm', 'runs', 'update of each collapse'], arms)}\n\n{markdown(head, areas)}"

    def figure(self, rows: Mapping[str, Values]) -> Figure:
        """A panel per metric with all runs that collapsed, aligned at their collapse."""
        figure = Figure(figsize=(4.8, 7.0), layout="constrained")
        for axis, name in zip(figure.subplots(4, 2, sharex=True).flatten(), METRICS, strict=True):
            for run in self.all_runs(rows):
                if run.collapse is not None:
                    start = max(0, run.collapse - BEFORE)
                    values = run.metrics[name][start : run.collapse + AFTER]
                    first = start - run.collapse
                    axis.plot(range(first, first + len(values)), values, color="#4f9dde", alpha=0.5, linewidth=1)
            axis.axvline(0, color="#c0392b", linewidth=1)
            axis.set_title(NAMES[name], fontsize=9)
            axis.grid(alpha=0.3)
        figure.supxlabel("updates after the collapse (red)", fontsize=9)
        return figure


def _fate(runs: Sequence[Run]) -> str:
    """How many runs collapsed, and how they ended on the test boards."""
    ends = [run.reward for run in runs if run.collapse is not None]
    left = sorted(reward for reward in ends if reward)
    went_on = f", and {len(left)} between {left[0]:.2f} and {left[-1]:.2f}" if left else ""
    return (
        f"In {len(ends)} of {len(runs)} runs the return collapsed: it lost half of its gain for more than one update."
        f" On the test boards {len(ends) - len(left)} of them ended at 0{went_on}."
    )


def _by_area(runs: Sequence[Run]) -> list[str]:
    """The metrics by how well they predict a collapse in the next update, the best first."""
    areas = {name: found for name in METRICS if (found := area(runs, name, 1)) is not None}
    return sorted(areas, key=lambda name: -abs(areas[name] - 0.5))


def collapse_of(returns: Sequence[float]) -> int | None:
    """The update, counted from 0, at which a run lost half of its gain; None if it never did.

    The gain is the highest median return of three updates so far, minus the median of the first three. A run collapses at an
    update that lost half of it, if one of the next two updates lost it too.

    >>> collapse_of([0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.3, 0.1, 0.1, 0.1])
    7
    """
    medians = np.median(sliding_window_view(np.array(returns), TOGETHER), axis=1)
    learned = np.maximum.accumulate(medians) - medians[0]
    half = medians[0] + learned / 2
    lost = (learned >= LEARNED) & (medians < half) & (np.array(returns[: len(medians)]) < half)
    return int(lost.argmax()) if lost.any() else None


def area(runs: Sequence[Run], metric: str, ahead: int) -> float | None:
    """The area under the ROC curve of a metric as a predictor of a collapse in the next `ahead` updates.

    It is the probability that the metric is higher in an update before a collapse than in another update: 0.5 if it says
    nothing, 0 if it is always lower. Updates from the collapse on do not count. None without updates of both kinds.
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
    """The area of each sample of the N runs that has updates of both kinds; times[s, n]: how often sample s has run n."""
    before, others = [], []
    for run in runs:
        values = np.array(run.metrics[metric][: run.collapse])
        start = len(values) if run.collapse is None else max(0, len(values) - ahead)
        before.append(values[start:])
        others.append(values[:start])
    apart = [[np.subtract.outer(a, b) for b in others] for a in before]
    higher = np.array([[np.sum(d > 0) + 0.5 * np.sum(d == 0) for d in row] for row in apart])  # (N, N) pairs, equal ones by half
    pairs = (times @ [len(a) for a in before]) * (times @ [len(b) for b in others])
    won: Floats = ((times @ higher) * times).sum(1)
    return won[pairs > 0] / pairs[pairs > 0]


EXPERIMENT = Collapse("collapse", "Which metric announces a collapse, and how early?")
