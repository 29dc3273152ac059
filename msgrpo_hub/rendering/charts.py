"""Charts, drawn by matplotlib: the curves of a run, and the chart of a task in the report.

This module does not import pyplot, so a user's own plots stay untouched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from os import PathLike
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.rendering.replay import ending

Metrics = Sequence[Mapping[str, float]]
"""One mapping per update, as in `metrics.jsonl`; some may lack a key."""

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0969da", "#d9730d", "#1a7f37", "#cf222e", "#8250df", "#59636e"
INK, FAINT = "#1f2328", "#d8dee4"

ENDINGS = {"success": BLUE, "survived": "#80b6f0", "out of turns": "#afb8c1", "lost": ORANGE, "not played": "#e7ebef"}
REPLIES = {"ok": "#c8d1da", "illegal": "#e0a100", "unparsed": PURPLE, "truncated": RED}


def plain(axis: Axes, name: str = "", explanation: str = "") -> None:
    """Gives an axis a light frame and grid, a title on the left and an explanation on the right."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(length=0, labelsize=9, labelcolor=GREY)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.02)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.set_title(name, loc="left", y=1.0, fontsize=12, fontweight="bold", color=INK, parse_math=False)
    axis.set_title(explanation, loc="right", y=1.0, fontsize=9, color=GREY)


def rolling_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means over the last twentieth of the run at each value. NaN stays NaN and is left out of the means."""
    window = max(1, len(values) // 20)
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return np.array([np.nan if np.isnan(part[-1]) else np.nanmean(part) for part in parts])


# ---- a run


def plot_curves(
    metrics: Metrics, path: str | PathLike[str], title: str = "", references: Mapping[str, Mapping[str, float]] | None = None
) -> None:
    """Saves a PNG of six plots over the updates: reward, success, replies, policy, learning signal and seconds.

    Missing and infinite values are not drawn. `references` are other players' `reward` and `success`, drawn as lines. Raises
    `ValueError` if there are no updates.
    """
    if not metrics:
        raise ValueError("no updates to draw: metrics is empty")
    figure = Figure(figsize=(12, 6.6), dpi=150)
    figure.subplots_adjust(left=0.055, right=0.985, bottom=0.085, top=0.88, wspace=0.62, hspace=0.26)
    reward, success, replies, policy, signal, seconds = figure.subplots(2, 3, sharex=True).flat

    def column(key: str) -> npt.NDArray[np.float64]:
        values = np.array([metric.get(key, np.nan) for metric in metrics], dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def line(axis: Axes, key: str, colour: str, label: str | None = None) -> npt.NDArray[np.float64]:
        values = column(key)
        axis.plot(updates, values, color=colour, alpha=0.25, linewidth=1)
        marker = "o" if len(updates) == 1 else "-"
        axis.plot(updates, rolling_mean(values), marker, color=colour, linewidth=2, markersize=4.5, label=label)
        return values

    # 1) reward and success, each with its validation points
    figure.suptitle(title, x=0.055, y=0.975, ha="left", fontsize=13, fontweight="bold", color=INK, parse_math=False)
    updates, sft = column("update"), sum("teacher_reward" in metric or "sft_replies" in metric for metric in metrics)
    for axis, key, explanation in ((reward, "reward", "mean return of an episode"), (success, "success", "share of episodes")):
        plain(axis, key.capitalize(), explanation)
        line(axis, key, BLUE, f"training, mean of {max(1, len(metrics) // 20)} updates" if len(metrics) > 39 else "training")
        points = column(f"validation_{key}")
        if (measured := np.isfinite(points)).any():
            axis.plot(updates[measured], points[measured], "o-", color=ORANGE, linewidth=1.2, markersize=4.5, label="validation")
        for (player, scores), style in zip((references or {}).items(), ((0, (4, 3)), (0, (1, 1.5))), strict=False):
            axis.axhline(scores[key], color=GREY, linewidth=1.2, linestyle=style, label=f"{player}, test: {scores[key]:.2f}")
    success.set_ylim(-0.02, 1.02)

    # 2) faulty replies
    plain(replies, "Replies", "share of all replies")
    line(replies, "unreadable_rate", RED, "unparsed")
    line(replies, "truncated_rate", PURPLE, "truncated")
    line(replies, "illegal_rate", ORANGE, "illegal")
    replies.set_ylim(bottom=0)
    for axis in (success, replies):
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))

    # 3) pairs of metrics of different magnitude, each with its own scale
    plain(policy, "Policy", "nats per token")
    plain(signal, "Signal", "input of the updates")
    for axis, *pair in (
        (policy, ("entropy", "entropy", GREEN), ("kl", "KL from the base", PURPLE)),
        (signal, ("gradient_norm", "gradient norm", BLUE), ("zero_variance_groups", "zero-variance groups", RED)),
    ):
        other = axis.twinx()
        plain(other)
        other.grid(visible=False)
        other.spines["right"].set(visible=True, color=FAINT)
        for scale, (key, label, colour) in zip((axis, other), pair, strict=True):
            values = line(scale, key, colour)
            scale.set_ylabel(label, color=colour)
            scale.tick_params(axis="y", labelcolor=colour)
            scale.yaxis.set_major_formatter("{x:.3g}")
            if not (values < 0).any():
                scale.set_ylim(0, None if (values > 0).any() else 1)

    # 4) time
    plain(seconds, "Seconds", "of each update")
    bottom, edges = np.zeros(len(updates)), np.append(updates - 0.5, updates[-1] + 0.5)
    parts = ("sampling", "acting", BLUE), ("training", "training", ORANGE), ("validation", "validating", GREEN)
    for name, part, colour in parts:
        top = bottom + np.nan_to_num(column(f"seconds_{part}"))
        seconds.stairs(top, edges, baseline=bottom, fill=True, color=colour, alpha=0.75, label=name)
        bottom = top
    seconds.set_ylim(0, 1.25 * float(bottom.max()) or 1.0)  # space for the legend

    # 5) SFT, in whose updates the policy played no training episode; legends
    for axis in (reward, success, replies, policy, signal, seconds):
        if sft:
            axis.axvspan(0.5, sft + 0.5, color=GREY, alpha=0.1, linewidth=0, zorder=0)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(edgecolor="none", fontsize=9, labelcolor=INK, loc="best", ncols=2 if axis is seconds else 1)
    if sft:
        policy.text(sft / 2 + 0.5, 0.5, "SFT", color=GREY, ha="center", va="center", transform=policy.get_xaxis_transform())
    for axis in (policy, signal, seconds):
        axis.set_xlabel("update", color=GREY)
    figure.savefig(path, format="png", facecolor="white")


# ---- the report


def task_svg(results: Sequence[Result], names: Sequence[str], *, narrow: bool = False) -> str:
    """One task's players as SVG: rewards with intervals, how episodes ended, and replies; below each other if `narrow`.

    Equal results give equal pictures. Colours are inverted for a reader who prefers dark pages. `names` has a name per result.
    """
    solved = any(result.summary["luck_adjusted"] for result in results)
    inches = 1.5 + 0.42 * len(results)
    figure = Figure(figsize=(4.6, 3.3 * inches) if narrow else (10, inches), layout="constrained")
    axes = figure.subplots(3, 1, sharey=True) if narrow else figure.subplots(1, 3, sharey=True, width_ratios=[1.4, 1, 1])
    places = np.arange(len(results))
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.12), "ncols": 2, "frameon": False, "fontsize": 9}

    # 1) rewards
    plain(axes[0], "Reward", "95 % interval")
    axes[0].xaxis.set_major_locator(MaxNLocator(5))
    low = (2, -18), axes[0].get_xaxis_transform(), "offset points"
    references = {name: value for result in results for name, value in result.summary["references"].items()}
    for name, value in references.items():
        axes[0].axvline(value, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes[0].annotate(name, (value, 0), *low, rotation=30, ha="right", va="top", color=GREY)
    for key, label, colour, shift in (("reward", "as played", BLUE, -0.12), ("luck_adjusted", "luck-adjusted", PURPLE, 0.12)):
        for row, result in enumerate(results):
            score, height = result.summary[key], [row + shift * solved]
            if score and score["low"] is not None:
                axes[0].plot([score["low"], score["high"]], height * 2, color=colour, linewidth=2)
            if score:
                axes[0].plot([score["mean"]], height, "o", color=colour, label=label if solved else None)
    if handles := dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True)):
        axes[0].legend(handles.values(), handles, **above)

    # 2) how episodes ended, and replies
    outcomes = zip(*map(count_outcomes, results), strict=True)
    for axis, title, kinds, counts in zip(axes[1:], ("Endings", "Replies"), (ENDINGS, REPLIES), outcomes, strict=True):
        plain(axis, title)
        left = np.zeros(len(results))
        for kind, colour in kinds.items():
            share = np.array([100 * each[kind] / max(each.total(), 1) for each in counts])
            if share.any():
                axis.barh(places, share, 0.62, left=left, color=colour, label=kind)
                left += share
        axis.set_xlim(0, 100)
        axis.set_xticks([0, 50, 100])
        axis.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        if axis.patches:
            axis.legend(**above, handlelength=0.9)

    axes[0].set_yticks(places, [short(name, 16 if narrow else 34) for name in names], parse_math=False)
    for axis in axes:
        axis.tick_params(axis="y", labelsize=10, labelcolor=INK)
    axes[0].set_ylim(len(results) - 0.4, -0.6)
    text = StringIO()
    with mpl.rc_context({"svg.hashsalt": "msgrpo_hub", "svg.fonttype": "none"}):
        unstamped = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata={"Title": "Scores of one task", **unstamped})
    dark = "<style>@media (prefers-color-scheme:dark){svg>g{filter:invert(1) hue-rotate(180deg)}}</style>"
    return text.getvalue().replace("</svg>", f"{dark}</svg>")


def count_outcomes(result: Result) -> tuple[Counter[str], Counter[str]]:
    """A player's episodes by ending, those without an answer from the server as "not played", and its replies by status."""
    ended = Counter(ending(success=episode.success, terminated=episode.terminated) for episode in result.episodes)
    faults = {"illegal": "illegal", "unparsed": "unreadable", "truncated": "truncated_replies"}
    replies = {kind: sum(getattr(score, name) for score in result.scores) for kind, name in faults.items()}
    replies["ok"] = sum(score.steps for score in result.scores) - sum(replies.values())
    return ended + Counter({"not played": int(result.summary["failed"])}), Counter(replies)
