"""The table and the figure of games that arms play in the end: what training on one game does to others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.curves import Arms, mean_with_interval, means_of, updates_of
from msgrpo_hub.evaluation.tables import markdown

COLOURS = ("#1f5f9f", "#d9822b", "#3a8f5c", "#8a8f98", "#a2528f")
"""Of arms, in their order."""


WIDEST = 100
"""Largest ratio of the scales of two games that share an axis."""


def table_of_others(arms: Arms, games: Sequence[str]) -> str:
    """The mean rewards on further games, with their intervals over training seeds."""
    rows = [
        [arm, str(len(seeds)) if updates_of(seeds) else "–", *(mean_with_interval(seeds, game) for game in games)]
        for arm, seeds in arms.items()
    ]
    return markdown(["arm", "seeds", *games], rows)


def draw_others(titled: Sequence[tuple[str, Arms]], games: Sequence[str]) -> Figure:
    """A line per game and arm: a small dot for every seed, a large one for their mean. Narrow enough to be read on a phone.

    Games share a scale, unless one would hide what the others show.

    Args:
        titled: groups of arms, each with a title.
        games: what all arms played, from top to bottom.
    """
    panels = [(title, arms, part) for title, arms in titled for part in _panels(arms, games)]
    apart = len(panels) > len(titled)
    heights = [(0.4 if apart else 0.9) + max(0.62, 0.2 * len(arms)) * len(part) for _, arms, part in panels]
    figure = Figure(figsize=(5.0, 0.5 + sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights).flatten()
    shown = ""
    for axis, (title, arms, part) in zip(axes, panels, strict=True):
        _draw_games(axis, arms, part)
        if title != shown:
            axis.set_title(title, fontsize=10)
            axis.legend(
                fontsize=8,
                ncols=min(len(arms), 3),
                loc="lower center",
                bbox_to_anchor=(0.5, 1.4 if apart else 1.09),
                frameon=False,
            )
            shown = title
    axes[-1].set_xlabel("mean test reward: every seed, and their mean", fontsize=9)
    return figure


def _panels(arms: Arms, games: Sequence[str]) -> list[list[str]]:
    """All games in one panel, or each in its own if the scales of two differ by more than `WIDEST`."""
    means = [[mean for seeds in arms.values() for mean in means_of(seeds, game).values()] for game in games]
    scales = [scale for of_game in means if (scale := float(np.max(np.abs(of_game)))) > 0]
    return [[game] for game in games] if scales and max(scales) > WIDEST * min(scales) else [list(games)]


def _draw_games(axis: Axes, arms: Arms, games: Sequence[str]) -> None:
    offsets = min(0.22, 0.8 / len(arms)) * (np.arange(len(arms)) - (len(arms) - 1) / 2)
    for colour, offset, (arm, seeds) in zip(cycle(COLOURS), offsets, arms.items(), strict=False):
        for line, game in enumerate(games):
            of_seeds = list(means_of(seeds, game).values())
            axis.plot(of_seeds, [line + offset] * len(of_seeds), "o", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)
            axis.plot(np.mean(of_seeds), line + offset, "o", color=colour, markersize=8, label=arm if line == 0 else None)
    for line in range(1, len(games)):
        axis.axhline(line - 0.5, color="#e3e5e8", linewidth=0.8)
    axis.axvline(0, color="#8a8f98", linewidth=0.8)
    axis.set_yticks(range(len(games)), [two_lines(game) for game in games], fontsize=8)
    axis.set_ylim(len(games) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)


def two_lines(game: str) -> str:
    """A game's name without its version, in two lines.

    >>> print(two_lines("Snake-Standard-v1:irrelevant-sentence"))
    Snake-Standard
    irrelevant-sentence
    >>> print(two_lines("FrozenLake-KeepAway-v1"))
    FrozenLake
    KeepAway
    """
    plain, _, told = game.replace("-v1", "").partition(":")
    return f"{plain}\n{told}" if told else plain.replace("-", "\n", 1)
