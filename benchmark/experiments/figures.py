"""The figures: learning curves, a dot per training seed, and rewards on several games. All are narrow enough for a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import cycle
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.experiments.differences import Arms, means_of, updates_of
from benchmark.experiments.experiment import Values

BLUE, GREY = "#1f5f9f", "#8a8f98"
COLOURS = (BLUE, "#d9822b", "#3a8f5c", GREY, "#a2528f")
"""Colours of arms, in order."""
LONGEST = 34
"""Characters in a line of a label."""
WIDEST = 100
"""Largest ratio of the scales of two games that share an axis."""


def panels(heights: Sequence[float], margin: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with one panel above the other, heights in inches."""
    figure = Figure(figsize=(5.0, margin + sum(heights)), layout="constrained")
    return figure, list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights).flatten())


def height(labels: Iterable[str]) -> float:
    """The height in inches of a panel with these labels."""
    return 0.27 * (sum(1 + 0.45 * label.count("\n") for label in labels) + 1)


def draw_dots(axes: Axes, lines: Mapping[str, Sequence[float]], reference: float | None, plain: Set[str] = frozenset()) -> None:
    """Draws a line of dots per name, from top to bottom, with a bar at their mean.

    Args:
        axes: the panel.
        lines: label → one value per training seed.
        reference: x position of the dotted reference line.
        plain: labels of lines without seeds: one grey dot, no bar.
    """
    for place, (name, values) in enumerate(reversed(list(lines.items()))):
        colour = GREY if name in plain else BLUE
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=1 if name in plain else 0.55, markersize=5)
        if name not in plain:
            axes.plot([np.mean(values)], [place], "|", color=colour, markersize=16, markeredgewidth=2)
    if reference is not None:
        axes.axvline(reference, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(lines)), list(reversed(list(lines))), fontsize=9)
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(axis="x", alpha=0.3)


def draw_curves(titled: Sequence[tuple[str, Arms]]) -> Figure:
    """A panel per group of arms with the validation reward of every seed, thin, and each arm's mean."""
    figure, axes = panels([2.6 + 0.2 * len(arms) for _, arms in titled])
    for axis, (title, arms) in zip(axes, titled, strict=True):
        for number, (arm, seeds) in enumerate(arms.items()):
            curves = np.array([values["curve"] for values in seeds.values()])  # (seeds, evaluations, 2)
            for curve in curves:
                axis.plot(*curve.T, color=f"C{number}", alpha=0.25, linewidth=0.7)
            axis.plot(*curves.mean(0).T, color=f"C{number}", linewidth=2, label=_label(arm, seeds))
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("update", fontsize=9)
        axis.set_ylabel("validation reward", fontsize=9)
        axis.tick_params(labelsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def draw_ends(titled: Sequence[tuple[str, Arms]], *, best_first: bool = False) -> Figure:
    """A line of dots per arm: the test reward of every seed. Dotted: the mean of the first arm.

    Args:
        titled: groups of arms with their titles.
        best_first: orders the arms by their means.
    """
    named = [{_label(arm, seeds): seeds for arm, seeds in arms.items()} for _, arms in titled]
    figure, panel = panels([height(ends) for ends in named], 0.6)
    for axis, ends in zip(panel, named, strict=True):
        lines = {name: list(means_of(seeds).values()) for name, seeds in ends.items()}
        first = float(np.mean(next(iter(lines.values()))))
        if best_first:
            lines = dict(sorted(lines.items(), key=lambda line: -np.mean(line[1])))
        draw_dots(axis, lines, first, plain={name for name, seeds in ends.items() if not updates_of(seeds)})
    figure.suptitle("; ".join(title for title, _ in titled), fontsize=10)
    figure.supxlabel("test reward of every seed (their number), and the mean;\ndotted: of the first arm of the table", fontsize=9)
    return figure


def _label(arm: str, seeds: Mapping[int, Values]) -> str:
    """The name of an arm with its number of seeds, if it is trained; wrapped so that it leaves room for the dots."""
    return "\n".join(wrap(f"{arm} ({len(seeds)})" if updates_of(seeds) else arm, LONGEST))


def draw_games(titled: Sequence[tuple[str, Arms]], games: Sequence[str]) -> Figure:
    """A line per game and arm: a small dot for every seed, a large one for the mean.

    Games share an axis unless the scales of two differ by more than `WIDEST`.

    Args:
        titled: groups of arms with their titles.
        games: games that all arms have played, from top to bottom.
    """
    parts = []
    for title, arms in titled:
        means = [[mean for seeds in arms.values() for mean in means_of(seeds, game).values()] for game in games]
        scales = [scale for of_game in means if (scale := float(np.max(np.abs(of_game)))) > 0]
        apart = scales and max(scales) > WIDEST * min(scales)
        parts += [(title, arms, part) for part in ([[game] for game in games] if apart else [list(games)])]
    several = len(parts) > len(titled)
    heights = [(0.4 if several else 0.9) + max(0.62, 0.2 * len(arms)) * len(part) for _, arms, part in parts]
    figure, axes = panels(heights, 0.5)
    shown = ""
    for axis, (title, arms, part) in zip(axes, parts, strict=True):
        offsets = min(0.22, 0.8 / len(arms)) * (np.arange(len(arms)) - (len(arms) - 1) / 2)
        for colour, offset, (arm, seeds) in zip(cycle(COLOURS), offsets, arms.items(), strict=False):
            for line, game in enumerate(part):
                ends, place = list(means_of(seeds, game).values()), line + offset
                axis.plot(ends, [place] * len(ends), "o", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)
                axis.plot(np.mean(ends), place, "o", color=colour, markersize=8, label=arm if line == 0 else None)
        for line in range(1, len(part)):
            axis.axhline(line - 0.5, color="#e3e5e8", linewidth=0.8)
        axis.axvline(0, color=GREY, linewidth=0.8)
        axis.set_yticks(range(len(part)), [two_lines(game) for game in part], fontsize=8)
        axis.set_ylim(len(part) - 0.5, -0.5)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(axis="x", alpha=0.3)
        if title != shown:
            shown, anchor = title, (0.5, 1.4 if several else 1.09)
            axis.set_title(title, fontsize=10)
            axis.legend(fontsize=8, ncols=min(len(arms), 3), loc="lower center", bbox_to_anchor=anchor, frameon=False)
    axes[-1].set_xlabel("mean test reward: every seed, and their mean", fontsize=9)
    return figure


def two_lines(game: str) -> str:
    """The name of a game without its version, in two lines.

    >>> print(two_lines("Snake-Standard-v1:irrelevant-sentence"))
    Snake-Standard
    irrelevant-sentence
    >>> print(two_lines("FrozenLake-KeepAway-v1"))
    FrozenLake
    KeepAway
    """
    plain, _, variant = game.replace("-v1", "").partition(":")
    return f"{plain}\n{variant}" if variant else plain.replace("-", "\n", 1)
