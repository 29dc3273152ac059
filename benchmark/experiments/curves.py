"""The table and the figure of learning curves: several arms, each with several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.dots import draw_dots, height, in_lines
from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.aggregate import method_interval
from msgrpo_hub.evaluation.statistics import Interval
from msgrpo_hub.evaluation.tables import markdown

TOO_FEW, NOTHING = "(n < 3)", "nothing yet"
"""What stands for an interval of fewer than three seeds, and for a comparison without any."""

Arms = Mapping[str, Mapping[int, Values]]
"""Arm → seed → the values of `training.learning_curve`."""


def curve_table(arms: Arms) -> str:
    """Validation reward at the end; test reward, its interval and spread over training seeds; processor time of an update."""
    head = [
        "arm",
        "seeds",
        "validation reward",
        "test reward [95 % over seeds]",
        "std over seeds",
        "lowest seed",
        "seconds per update",
    ]
    return markdown(head, [_line(arm, seeds) for arm, seeds in arms.items()])


def _line(arm: str, seeds: Mapping[int, Values]) -> list[str]:
    of_seeds = list(means_of(seeds).values())
    validation = np.mean([values["curve"][-1][-1] for values in seeds.values()])
    updates = updates_of(seeds)
    if not updates:
        return [arm, "–", f"{validation:.3f}", f"{of_seeds[0]:.3f}", "–", "–", "–"]
    spread = f"{np.std(of_seeds, ddof=1):.3f}" if len(of_seeds) > 1 else "–"
    seconds = f"{sum(values['seconds'] for values in seeds.values()) / updates:.2f}"
    return [arm, str(len(of_seeds)), f"{validation:.3f}", with_interval(of_seeds), spread, f"{min(of_seeds):.3f}", seconds]


def updates_of(seeds: Mapping[int, Values]) -> int:
    """The updates of all seeds; none of an arm that is the base itself, and has neither seeds nor a spread over them."""
    return sum(values["curve"][-1][0] for values in seeds.values())


def with_interval(of_seeds: Sequence[float], form: str = ".3f") -> str:
    """The mean, and its 95 % interval over training seeds.

    >>> with_interval([0.0, 1.0])
    '0.500 (n < 3)'
    """
    interval: Interval | None = method_interval(of_seeds)
    return f"{np.mean(of_seeds):{form}} {interval or TOO_FEW}"


def mean_with_interval(seeds: Mapping[int, Values], game: str) -> str:
    """The mean reward on a game that was played in the end, with its interval over training seeds."""
    of_seeds = list(means_of(seeds, game).values())
    return with_interval(of_seeds) if updates_of(seeds) else f"{of_seeds[0]:.3f}"


class Difference(NamedTuple):
    """An arm against the first, over the seeds that both have."""

    arm: str
    of_seeds: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.of_seeds))

    @property
    def interval(self) -> Interval | None:
        """95 %, over training seeds; None for fewer than three."""
        found: Interval | None = method_interval(self.of_seeds)
        return found


def differences(arms: Arms, game: str = "") -> list[Difference]:
    """Those of every arm that has a seed of the first, the largest first.

    Args:
        arms: what has run.
        game: one that the arms played in the end; by default their own.
    """
    (_, reference), *others = arms.items()
    means = means_of(reference, game)
    found = []
    for arm, seeds in others:
        of_seeds = [mean - means[seed] for seed, mean in means_of(seeds, game).items() if seed in means]
        trained = updates_of(seeds) or updates_of(reference)
        found.append(Difference(arm, tuple(of_seeds if trained else of_seeds[:1])))
    return sorted((each for each in found if each.of_seeds), key=lambda each: -each.mean)


def findings(arms: Arms, game: str = "") -> str:
    """The first arm, and each other's difference from it; `game` as for `differences`."""
    first, reference = next(iter(arms.items()))
    told = "; ".join(f"{each.arm} {with_interval(each.of_seeds, '+.3f')}" for each in differences(arms, game))
    return f"{first}: {np.mean(list(means_of(reference, game).values())):.3f}. Against it: {told or NOTHING}."


def means_of(seeds: Mapping[int, Values], game: str = "") -> dict[int, float]:
    """Seed → its mean test reward, on a game that was played in the end or by default on its own."""
    return {seed: float(np.mean(values["also"][game] if game else values["test_rewards"])) for seed, values in seeds.items()}


def draw_curves(titled: Sequence[tuple[str, Arms]], columns: int = 2) -> Figure:
    """A panel per arm: the validation reward of every seed, and the mean over seeds. Narrow enough to be read on a phone.

    Args:
        titled: groups of arms, each with a title that stands over its panels and with axes of its own.
        columns: of panels.
    """
    rows = [-(-len(arms) // columns) for _, arms in titled]
    figure = Figure(figsize=(2.4 * columns, 2.0 * sum(rows) + 0.6 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(titled), 1, height_ratios=rows, squeeze=False).flatten()
    for part, (title, arms), lines in zip(parts, titled, rows, strict=True):
        axes = part.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axis, (arm, seeds) in zip(axes, arms.items(), strict=False):
            _draw_arm(axis, arm, seeds)
        for axis in axes[len(arms) :]:
            axis.set_visible(False)
        part.suptitle(title, fontsize=10)
        part.supxlabel("update", fontsize=9)
        part.supylabel("validation reward", fontsize=9)
    return figure


def _draw_arm(axis: Axes, arm: str, seeds: Mapping[int, Values]) -> None:
    curves = [np.array(values["curve"]) for values in seeds.values()]
    for curve in curves:
        axis.plot(curve[:, 0], curve[:, 1], color="#4f9dde", alpha=0.35, linewidth=1)
    axis.plot(
        np.mean([c[:, 0] for c in curves], axis=0), np.mean([c[:, 1] for c in curves], axis=0), color="#1f5f9f", linewidth=2
    )
    axis.set_title(f"{in_lines(arm)}\n{len(curves)} seed{'s' * (len(curves) > 1)}", fontsize=9)
    axis.grid(alpha=0.3)


def draw_ends(titled: Sequence[tuple[str, Arms]]) -> Figure:
    """A line per arm with its number of seeds: the test reward of each, and their mean; dotted, the mean of the first arm."""
    named = [(title, {_line_name(arm, seeds): seeds for arm, seeds in arms.items()}) for title, arms in titled]
    heights = [height(ends) for _, ends in named]
    figure = Figure(figsize=(5.0, 0.6 + 0.27 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(titled), 1, squeeze=False, height_ratios=heights).flatten()
    for axes, (_, ends) in zip(panels, named, strict=True):
        lines = {name: list(means_of(seeds).values()) for name, seeds in ends.items()}
        untrained = {name for name, seeds in ends.items() if not updates_of(seeds)}
        draw_dots(axes, lines, float(np.mean(next(iter(lines.values())))), plain=untrained)
    figure.suptitle("; ".join(title for title, _ in titled), fontsize=10)
    figure.supxlabel("test reward of every seed, and their mean", fontsize=9)
    return figure


def _line_name(arm: str, seeds: Mapping[int, Values]) -> str:
    return in_lines(f"{arm} ({len(seeds)})" if updates_of(seeds) else arm)
