"""A line of dots per name: one for every training seed, and a bar for their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes

BLUE, GREY = "#1f5f9f", "#8a8f98"

LONGEST = 34
"""Characters of a line of a name."""


def in_lines(name: str) -> str:
    """A name that leaves room for its dots."""
    return "\n".join(wrap(name, LONGEST))


def height(names: Iterable[str]) -> float:
    """How much room a panel needs, in lines, for names made by `in_lines`."""
    return sum(1 + 0.45 * name.count("\n") for name in names) + 1


def draw_dots(axes: Axes, lines: Mapping[str, Sequence[float]], reference: float | None, plain: Set[str] = frozenset()) -> None:
    """Draws the lines from top to bottom.

    Args:
        axes: of one panel.
        lines: name → its values.
        reference: where a dotted line stands for what they are held against.
        plain: names whose one value has no seed: grey, without a bar.
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
