"""The figure: the cosines of every estimator at every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.exact_gradient.estimators import Estimator
from benchmark.experiments.exact_gradient.results import EPISODES, Checkpoint, checkpoints_of, measured
from benchmark.experiments.experiment import Values


def figure(rows: Mapping[str, Values]) -> Figure:
    """A row of panels per checkpoint, one of each game: the cosine of one update and of the expectation, for every estimator."""
    points = checkpoints_of(rows)
    games, updates = (list(dict.fromkeys(point[part] for point in points)) for part in (0, 1))
    estimators = measured(points)
    drawn = Figure(figsize=(1.5 * len(games) + 2.1, 3.2 * len(updates) + 0.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(len(updates), len(games), sharex=True, sharey=True, squeeze=False)
    for axis in axes.flatten():
        axis.set_visible(False)
    for point in points:
        axis = axes[updates.index(point.update), games.index(point.game)]
        axis.set_visible(True)
        _draw(axis, point, estimators)
        values = point.values
        axis.set_title(f"{point.name} updates\nJ = {values['value']:.2f} of {values['optimal']:.2f}", fontsize=8.5)
    drawn.supxlabel("cosine to the exact gradient", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=1, frameon=False, fontsize=9)
    return drawn


MARKS = {
    "cosine": ("o", "#1f6fb4", f"one update of {EPISODES} episodes (± 2 standard errors)"),
    "cosine_of_mean": ("|", "#d9822b", "the expectation: bias alone"),
}
"""Statistic → how it is drawn."""


def _draw(axis: Axes, point: Checkpoint, estimators: Sequence[Estimator]) -> None:
    for name, (mark, colour, label) in MARKS.items():
        shown = [(k, e) for k, e in enumerate(estimators) if name == "cosine" or point.resolves(e)]
        values, errors = zip(*((point.of(e, name), 2 * point.error(e, name)) for _, e in shown), strict=True)
        size = 4 if mark == "o" else 10
        axis.errorbar(values, [k for k, _ in shown], xerr=errors, fmt=mark, color=colour, ms=size, mew=2, lw=1, label=label)
    axis.set_yticks(range(len(estimators)), [estimator.name for estimator in estimators], fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_ylim(len(estimators) - 0.5, -0.5)
    axis.grid(alpha=0.3)
