"""Runs of several seeds together: a thin line for each, their mean with its interval over seeds, and every test result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from os import PathLike
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from msgrpo_hub.evaluation.over_seeds import OverSeeds, over_seeds
from msgrpo_hub.evaluation.statistics import Range
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.rendering.curves import FAINT, GREY, INK, plain, rolling_mean, title

Floats = npt.NDArray[np.float64]
Line = tuple[Floats, Floats]
"""x and y of the same length."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#3A9BD9", "#000000")
"""The colours of Okabe and Ito, which the colour-blind tell apart; their yellows are darker here, to be read as text."""

_STYLES = ("-", "--", ":")
"""Beyond seven variants, the same colours again with other lines."""

_POINTS = 200
"""Most points of a mean."""

_LABEL = 0.34
"""Height of a label of two lines, in inches."""

_NAME = 28
"""Most characters of a name that fit beside the axes."""

_ROOM = 0.9
"""Width of the references' labels, where a curve has 3."""

_LINE = 18
"""Most characters of a line of such a label, unless a name is longer."""

_NEAR = 0.05
"""Distance from which the labels of two references are apart, in heights of the axes."""

_BOTTOM, _TOP = 0.13, 0.86
"""Ends of the axes, in heights of the figure."""


@dataclass(frozen=True, kw_only=True)
class SeedLines:
    """The runs of a variant, by seed."""

    name: str
    game: str
    training: Mapping[int, Line]
    """Reward of each update."""
    validation: Mapping[int, Line]
    """Reward at some updates; empty lines where there was no validation."""
    test: Mapping[int, float]
    """Mean reward on the test episodes, of the finished runs."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Other players' mean reward on the same test episodes."""
    bounds: Range | None = None
    """The smallest and the largest possible reward; no interval leaves them."""


def has_curves(variants: Sequence[SeedLines]) -> bool:
    """Whether there is anything to draw. A run that was only taught has played no update."""
    lines = [line for variant in variants for part in (variant.training, variant.validation) for line in part.values()]
    return any(x.size for x, _ in lines) or any(variant.test for variant in variants)


def plot_seed_curves(variants: Sequence[SeedLines], path: str | PathLike[str], *, x_label: str, kind: str = "png") -> None:
    """Draws variants together and saves the figure.

    Args:
        variants: one or more, of which `has_curves` is true.
        path: of the file.
        x_label: what the lines run over, with its unit.
        kind: `png` or `svg`.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not has_curves(variants):
        raise ValueError("no updates to draw: no run has any")
    has_validation = any(x.size for variant in variants for x, _ in variant.validation.values())
    has_test = any(variant.test for variant in variants)
    columns = min(0.6 + 0.25 * len(variants), 3.0)
    room = _ROOM if _same_references(variants) else 0.0
    widths = [3.0, *([3.0] if has_validation else []), *([columns + room] if has_test else [])]
    height = max(4.4, _LABEL * len(variants) / (_TOP - _BOTTOM))
    figure = Figure(figsize=(12, height), dpi=150)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.06, right=0.82, bottom=_BOTTOM, top=_TOP, wspace=0.08)
    axes = iter(figure.subplots(1, len(widths), sharey=True, width_ratios=widths, squeeze=False)[0])
    looks = list(zip(variants, _looks(), strict=False))
    ends = _curves(next(axes), looks, "training", x_label)
    if has_validation:
        ends |= _curves(next(axes), looks, "validation", x_label)
    if has_test:
        ends |= _test(next(axes), looks, room / columns)
    _label(figure.axes[-1], looks, ends, _LABEL / (height * (_TOP - _BOTTOM)))
    figure.axes[0].set_ylabel("mean reward of an episode", color=GREY)
    games = ", ".join(dict.fromkeys(variant.game for variant in variants))
    figure.text(0.06, 0.965, games, fontsize=12, fontweight="bold", color=INK, va="center", parse_math=False)
    note = "thin: each training seed; bold: their mean; shaded, bars: its 95 % interval over seeds (needs 3)"
    figure.text(0.985, 0.965, note, fontsize=9, color=GREY, va="center", ha="right")
    with mpl.rc_context({"svg.hashsalt": "msgrpo_hub"}):
        figure.savefig(Path(path), format=kind, facecolor="white", metadata={"Date": None} if kind == "svg" else None)


Look = tuple[str, str]
"""Colour and line style."""
Looks = Sequence[tuple[SeedLines, Look]]


def _looks() -> Iterable[Look]:
    return ((colour, style) for style in cycle(_STYLES) for colour in COLOURS)


def _curves(axis: Axes, looks: Looks, part: str, x_label: str) -> dict[str, float]:
    """The lines of every variant. Returns where each mean ends, or the mean of its seeds' ends."""
    plain(axis)
    title(axis, part.capitalize(), "rolling mean" if part == "training" else "same episodes")
    axis.set_xlabel(x_label, color=GREY)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ends = {}
    for variant, (colour, style) in looks:
        lines = [(x, rolling_mean(y) if part == "training" else y) for x, y in getattr(variant, part).values() if x.size]
        for x, y in lines:
            axis.plot(x, y, "o" * (len(x) == 1) + style, color=colour, alpha=0.3, linewidth=0.8, markersize=3)
        if lines:
            x, means = mean_line(lines, variant.bounds)
            values = np.array([mean.mean for mean in means])
            if len(x):
                dots = "o" if part == "validation" or len(x) == 1 else ""
                axis.plot(x, values, dots + style, color=colour, linewidth=2.2, markersize=4)
                _band(axis, x, means, colour)
            ends[variant.name] = float(values[-1] if len(x) else np.mean([y[-1] for _, y in lines]))
    return ends


def mean_line(lines: Sequence[Line], bounds: Range | None) -> tuple[Floats, list[OverSeeds]]:
    """The mean over seeds with its interval, at points that all lines span; none where they do not overlap.

    Lines are joined between their points.
    """
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    points = np.unique(np.concatenate([x for x, _ in lines]))
    points = points[(points >= first) & (points <= last)]
    x = points if len(points) <= _POINTS else np.linspace(first, last, _POINTS)
    values = np.stack([np.interp(x, *line) for line in lines])
    return x, [over_seeds(dict(enumerate(column)), bounds) for column in values.T.tolist()]


def _band(axis: Axes, x: Floats, means: Sequence[OverSeeds], colour: str) -> None:
    ends = [(mean.interval.low, mean.interval.high) if mean.interval else (math.nan, math.nan) for mean in means]
    low, high = zip(*ends, strict=True)
    axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def _test(axis: Axes, looks: Looks, room: float) -> dict[str, float]:
    """A column for each variant: a dot per seed, beside them the mean with its interval. Returns the means.

    To their left is room for the labels of the references, as a multiple of the width of the columns.
    """
    plain(axis)
    title(axis, "Test", "")
    axis.set_xticks([])
    axis.set_xlim(-0.6 - room * (len(looks) + 0.3), len(looks) - 0.3)
    ends = {}
    for place, (variant, (colour, _)) in enumerate(looks):
        if not variant.test:
            continue
        found = over_seeds(variant.test, variant.bounds)
        spread = np.linspace(-0.16, 0.16, len(variant.test)) if len(variant.test) > 1 else np.zeros(1)
        axis.plot(place - 0.12 + spread, [*variant.test.values()], "o", color=colour, alpha=0.45, markersize=4.5, linewidth=0)
        if found.interval:
            axis.plot([place + 0.22] * 2, [found.interval.low, found.interval.high], color=colour, linewidth=1.6)
        axis.plot([place + 0.22], [found.mean], "D", color=colour, markersize=6)
        ends[variant.name] = found.mean
    _reference_lines(axis, _same_references([variant for variant, _ in looks]))
    return ends


def _reference_lines(axis: Axes, references: Mapping[str, float]) -> None:
    """A line per reference; those that nearly coincide share a label."""
    for value in references.values():
        axis.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    low, high = axis.get_ylim()
    labels: dict[float, list[str]] = {}
    for name, value in sorted(references.items(), key=lambda reference: -reference[1]):
        near = next((placed for placed in labels if placed - value < _NEAR * (high - low)), value)
        labels.setdefault(near, []).append(name)
    for value, names in labels.items():
        text = fill(", ".join(reversed(names)), _LINE, break_long_words=False)
        axis.text(0.02, value, text, transform=axis.get_yaxis_transform(), va="bottom", fontsize=8, color=GREY, parse_math=False)


def _same_references(variants: Sequence[SeedLines]) -> dict[str, float]:
    """The players that have one value for all variants."""
    every = [variant.references for variant in variants if variant.references]
    return {name: value for name, value in every[0].items() if all(of.get(name) == value for of in every)} if every else {}


def _label(axis: Axes, looks: Looks, ends: Mapping[str, float], gap: float) -> None:
    """Each variant's name with its test mean, at the height where it ends, moved apart where they would overlap."""
    low, high = axis.get_ylim()
    named = sorted(((variant, look) for variant, look in looks if variant.name in ends), key=lambda pair: ends[pair[0].name])
    heights = apart([(ends[variant.name] - low) / (high - low) for variant, _ in named], gap)
    for (variant, (colour, _)), height in zip(named, heights, strict=True):
        name = short(variant.name, _NAME)
        text = f"{name}\n{over_seeds(variant.test, variant.bounds)}" if variant.test else name
        axis.annotate(
            text,
            (1.0, (ends[variant.name] - low) / (high - low)),
            (0.835, height),
            "axes fraction",
            ("figure fraction", "axes fraction"),
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "relpos": (0, 0.5)},
            color=colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            parse_math=False,
        )


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in ascending order, moved as little as keeps a gap between them (pool adjacent violators), and into 0 to 1.

    >>> [round(height, 6) for height in apart([0.1, 0.5, 0.5, 0.97], 0.1)]
    [0.1, 0.45, 0.55, 0.95]
    """
    pools: list[list[float]] = []
    for number, height in enumerate(heights):
        pools.append([height - number * gap])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    even = [float(np.mean(pool)) for pool in pools for _ in pool]
    low, high = gap / 2, 1 - gap / 2 - (len(heights) - 1) * gap
    return [min(max(start, low), max(low, high)) + number * gap for number, start in enumerate(even)]
