"""The learning curves of a run, as one PNG of six small plots over the updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

Metrics = Sequence[Mapping[str, float]]
"""One mapping per update, as in `metrics.jsonl`; a key may be missing from some of them."""

_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, GREY = "#0969da", "#d9730d", "#1a7f37", "#cf222e", "#8250df", "#59636e"
INK, FAINT = "#1f2328", "#d8dee4"
_TOP = 1.0
"""Height of a title, in heights of its axes. A fixed value saves the layout search, a third of the time."""

_MARGINS = {"left": 0.055, "right": 0.985, "bottom": 0.085, "top": 0.94, "wspace": 0.62, "hspace": 0.26}
"""Margins of the figure and gaps between its parts: a layout that measures its texts draws them all twice."""


def plot_curves(metrics: Metrics, path: str | PathLike[str]) -> None:
    """Draws the curves of `metrics` and saves them.

    Raises:
        ValueError: for metrics without an update.
    """
    if not metrics:
        raise ValueError("no updates to draw: metrics is empty")
    figure = Figure(figsize=(12, 6.6), dpi=150)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(**_MARGINS)
    axes = figure.subplots(2, 3, sharex=True).flat
    for axis, draw in zip(axes, (_reward, _success, _replies, _policy, _signal, _seconds), strict=True):
        plain(axis)
        draw(axis, metrics)
        _taught(axis, metrics, named=draw in (_replies, _policy))
    for axis in figure.axes:
        _legend(axis)
    for axis in figure.axes[3:6]:
        axis.set_xlabel("update", color=GREY)
    figure.savefig(path, format="png", facecolor="white")


def _taught(axis: Axes, metrics: Metrics, named: bool) -> None:
    """Shades the updates that were taught, in which the policy did not play, and names them where nothing else is drawn there."""
    taught = sum("teacher_reward" in line for line in metrics)
    if taught:
        axis.axvspan(0.5, taught + 0.5, color=GREY, alpha=0.1, linewidth=0, zorder=0)
    if taught and named:
        axis.text(taught / 2 + 0.5, 0.5, "taught", color=GREY, ha="center", va="center", transform=axis.get_xaxis_transform())


def _reward(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Reward", "mean return of an episode")
    _learning(axis, metrics, "reward", "validation_reward")


def _success(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Success", "share of episodes")
    _learning(axis, metrics, "success", "validation_success")
    _as_share(axis)
    axis.set_ylim(-0.02, 1.02)


def _learning(axis: Axes, metrics: Metrics, train: str, validation: str) -> None:
    """A training metric with its validation points."""
    updates = _column(metrics, "update")
    _line(axis, updates, _column(metrics, train), _BLUE, "training, rolling mean")
    points = _column(metrics, validation)
    seen = np.isfinite(points)
    if seen.any():
        axis.plot(updates[seen], points[seen], "o-", color=_ORANGE, linewidth=1.2, markersize=4.5, label="validation")


def _replies(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Replies", "share of all replies")
    updates = _column(metrics, "update")
    for key, color, name in (
        ("unreadable_rate", _RED, "unparsed"),
        ("truncated_rate", _PURPLE, "truncated"),
        ("illegal_rate", _ORANGE, "illegal"),
    ):
        _line(axis, updates, _column(metrics, key), color, name)
    _as_share(axis)
    axis.set_ylim(bottom=0)


def _policy(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Policy", "nats per token")
    _two_scales(axis, metrics, ("entropy", "entropy", _GREEN), ("kl", "KL from the base", _PURPLE))


def _signal(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Signal", "what the updates learn from")
    _two_scales(axis, metrics, ("gradient_norm", "gradient norm", _BLUE), ("zero_variance_groups", "zero-variance groups", _RED))


def _seconds(axis: Axes, metrics: Metrics) -> None:
    title(axis, "Seconds", "of each update")
    updates = _column(metrics, "update")
    parts = [np.nan_to_num(_column(metrics, f"seconds_{part}")) for part in ("acting", "training")]
    if len(updates) > 1:
        axis.stackplot(updates, *parts, colors=[_BLUE, _ORANGE], alpha=0.75, labels=["acting", "training"], linewidth=0)
    else:  # an area of width zero is invisible
        axis.bar(updates, parts[0], color=_BLUE, alpha=0.75, label="acting")
        axis.bar(updates, parts[1], bottom=parts[0], color=_ORANGE, alpha=0.75, label="training")
    axis.set_ylim(0, 1.25 * float((parts[0] + parts[1]).max()) or 1.0)  # room for the legend


Line = tuple[str, str, str]
"""Metric, label, colour."""


def _two_scales(axis: Axes, metrics: Metrics, left: Line, right: Line) -> None:
    """Two metrics of different magnitude, each with its own scale and colour."""
    other = axis.twinx()
    plain(other)
    other.set_title("", y=_TOP)
    other.grid(visible=False)
    other.spines["right"].set(visible=True, color=FAINT)
    updates = _column(metrics, "update")
    for scale, (key, label, color) in ((axis, left), (other, right)):
        values = _column(metrics, key)
        _line(scale, updates, values, color)
        scale.set_ylabel(label, color=color)
        scale.tick_params(axis="y", labelcolor=color)
        scale.yaxis.set_major_formatter("{x:.3g}")
        if not (values < 0).any():
            scale.set_ylim(0, None if (values > 0).any() else 1)


def _line(
    axis: Axes, updates: npt.NDArray[np.float64], values: npt.NDArray[np.float64], color: str, label: str | None = None
) -> None:
    """A metric: its values faint, their rolling mean bold; a dot if there is only one update."""
    axis.plot(updates, values, color=color, alpha=0.25, linewidth=1)
    axis.plot(
        updates, rolling_mean(values), "o" if len(updates) == 1 else "-", color=color, linewidth=2, markersize=4.5, label=label
    )


def _column(metrics: Metrics, key: str) -> npt.NDArray[np.float64]:
    """One metric over the updates. Missing and infinite values are NaN, which is not drawn."""
    values = np.array([metric.get(key, np.nan) for metric in metrics], dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def rolling_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The mean of each value and those before it, over a window of a twentieth of the run. NaN stays NaN and is in no mean."""
    window = max(1, len(values) // 20)
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return np.array([np.nan if np.isnan(part[-1]) else np.nanmean(part) for part in parts])


def plain(axis: Axes) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(FAINT)
    axis.tick_params(length=0, labelsize=9, labelcolor=GREY)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.02)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axis.yaxis.set_major_locator(MaxNLocator(5))


def title(axis: Axes, name: str, explanation: str) -> None:
    axis.set_title(name, loc="left", y=_TOP, fontsize=12, fontweight="bold", color=INK)
    axis.set_title(explanation, loc="right", y=_TOP, fontsize=9, color=GREY)


def _as_share(axis: Axes) -> None:
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def _legend(axis: Axes) -> None:
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=9, labelcolor=INK, loc="best", ncols=2 if axis.get_title("left") == "Seconds" else 1)
