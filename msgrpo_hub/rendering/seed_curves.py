"""Runs of several seeds together: a thin line for each, their mean with its interval over seeds, and every test result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from os import PathLike

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import OverSeeds, Range, over_seeds
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.rendering.charts import GREY, INK, plain, rolling_mean

Floats = npt.NDArray[np.float64]
Line = tuple[Floats, Floats]
"""x and y of the same length."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#3A9BD9", "#000000")
"""The colour-blind-safe palette of Okabe and Ito, with darker yellows."""


@dataclass(frozen=True, kw_only=True)
class SeedLines:
    """The runs of a variant, by seed."""

    name: str
    game: str
    training: Mapping[int, Line]
    """Reward of each update."""
    validation: Mapping[int, Line]
    """Reward at some updates; empty lines without validation."""
    test: Mapping[int, float]
    """Mean reward of each finished run on the test episodes."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Other players' mean reward on the same test episodes."""
    bounds: Range | None = None
    """The smallest and the largest possible reward; intervals end there."""


def mean_line(lines: Sequence[Line], bounds: Range | None) -> tuple[Floats, list[OverSeeds]]:
    """The mean over seeds with its interval, at up to 200 points that all lines span; empty if the lines do not overlap.

    Values between the points of a line are interpolated.
    """
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    points = np.unique(np.concatenate([x for x, _ in lines]))
    points = points[(points >= first) & (points <= last)]
    x = points if len(points) <= 200 else np.linspace(first, last, 200)
    values = np.stack([np.interp(x, *line) for line in lines])
    return x, [over_seeds(dict(enumerate(column)), bounds) for column in values.T.tolist()]


def plot_seed_curves(variants: Sequence[SeedLines], path: str | PathLike[str], *, x_label: str, kind: str = "png") -> None:
    """Draws variants together and saves the figure as `kind`, `png` or `svg`; `x_label` names the x axis with its unit.

    Raises `UserError` if there is nothing to draw: a run with SFT only has no updates with a reward.
    """
    parts = ["training"]
    parts += ["validation"] if any(x.size for variant in variants for x, _ in variant.validation.values()) else []
    parts += ["test"] if any(variant.test for variant in variants) else []
    if parts == ["training"] and not any(x.size for variant in variants for x, _ in variant.training.values()):
        raise UserError("none of these runs has finished an update after those of a teacher: nothing to draw; wait for the first")
    widths = [min(1.5 + 0.25 * len(variants), 4.0) if part == "test" else 3.0 for part in parts]
    figure = Figure(figsize=(12, max(4.4, 0.4 * len(variants))), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(parts), sharey=True, width_ratios=widths, squeeze=False)[0]
    looks = [(COLOURS[number % len(COLOURS)], style) for style in ("-", "--", ":") for number in range(len(COLOURS))]
    styled = list(zip(variants, cycle(looks), strict=False))

    # 1) the lines of the seeds, their mean and its interval
    for axis, part in zip(axes, parts, strict=True):
        plain(axis, part.capitalize(), {"training": "rolling mean, 5 % of it", "validation": "same episodes", "test": ""}[part])
        if part == "test":
            continue
        axis.set_xlabel(x_label, color=GREY)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        for variant, (colour, style) in styled:
            lines = [(x, rolling_mean(y) if part == "training" else y) for x, y in getattr(variant, part).values() if x.size]
            for x, y in lines:
                axis.plot(x, y, "o" * (len(x) == 1) + style, color=colour, alpha=0.3, linewidth=0.8, markersize=3)
            x, means = mean_line(lines, variant.bounds) if lines else (np.array([]), [])
            dots = "o" if part == "validation" or len(x) == 1 else ""
            axis.plot(x, [mean.mean for mean in means], dots + style, color=colour, linewidth=2.2, markersize=4)
            ends = [(mean.interval.low, mean.interval.high) if mean.interval else (math.nan, math.nan) for mean in means]
            axis.fill_between(x, *np.array(ends).reshape(-1, 2).T, color=colour, alpha=0.2, linewidth=0)

    # 2) a dot for each test result, and through them their mean and its interval
    names = []
    for place, (variant, (colour, style)) in enumerate(styled):
        found = over_seeds(variant.test, variant.bounds) if variant.test else None
        seeds = f"{len(variant.test or variant.training)} seed{'s' if len(variant.test or variant.training) > 1 else ''}"
        label = f"{short(variant.name, 28)}, {seeds}" + (f"\n{found}" if found else "")
        names.append((axes[0].plot([], [], style, color=colour, linewidth=2.2)[0], label))
        if found:
            if found.interval:
                axes[-1].plot([place] * 2, [found.interval.low, found.interval.high], color=colour, linewidth=6, alpha=0.3)
            spread = np.linspace(-0.1, 0.1, len(variant.test)) if len(variant.test) > 1 else np.zeros(1)
            axes[-1].plot(place + spread, [*variant.test.values()], "o", color=colour, alpha=0.6, markersize=4.5)
            axes[-1].plot([place - 0.25, place + 0.25], [found.mean] * 2, color=colour, linewidth=2.2)
    if parts[-1] == "test":
        every = [variant.references for variant in variants if variant.references]
        same = {name: value for name, value in every[0].items() if all(of.get(name) == value for of in every)} if every else {}
        for value in same.values():
            axes[-1].axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
        axes[-1].set_xticks([])
        axes[-1].set_xlim(-0.6, len(variants) - 0.4)
        listed = "\n".join(f"{name} {value:.2f}" for name, value in sorted(same.items(), key=lambda reference: -reference[1]))
        axes[-1].set_xlabel(f"dashed:\n{listed}" if same else "", fontsize=9, color=GREY, parse_math=False)

    # 3) title, legend and note
    axes[0].set_ylabel("mean reward of an episode", color=GREY)
    legend = figure.legend(*zip(*names, strict=True), loc="outside right upper", frameon=False, fontsize=9, labelspacing=1)
    for text in legend.get_texts():
        text.set_parse_math(False)
    games = ", ".join(dict.fromkeys(variant.game for variant in variants))
    note = "thin lines, dots: each training seed; bold: their mean; shaded: its 95 % interval over seeds (needs 3)"
    figure.suptitle(games, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK, parse_math=False)
    figure.supxlabel(note, fontsize=9, color=GREY)
    with mpl.rc_context({"svg.hashsalt": "msgrpo_hub", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, facecolor="white", metadata={"Date": None} if kind == "svg" else None)
