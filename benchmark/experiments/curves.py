"""The table and the figure of learning curves: several arms, each with several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.aggregate import method_interval
from msgrpo_hub.evaluation.statistics import Interval
from msgrpo_hub.evaluation.tables import markdown

Arms = Mapping[str, Mapping[int, Values]]
"""Arm → seed → the values of `training.learning_curve`."""


def curve_table(arms: Arms) -> str:
    """Test reward, its interval and spread over training seeds, and the number of updates."""
    head = ["arm", "seeds", "test reward [95 % over seeds]", "std over seeds", "lowest seed", "updates"]
    return markdown(head, [_line(arm, seeds) for arm, seeds in arms.items()])


def _line(arm: str, seeds: Mapping[int, Values]) -> list[str]:
    means = {seed: float(np.mean(values["test_rewards"])) for seed, values in seeds.items()}
    of_seeds = list(means.values())
    spread = f"{np.std(of_seeds, ddof=1):.3f}" if len(of_seeds) > 1 else "–"
    updates = f"{np.mean([values['updates'] for values in seeds.values()]):.0f}"
    return [arm, str(len(means)), _with_interval(of_seeds), spread, f"{min(of_seeds):.3f}", updates]


def _with_interval(of_seeds: Sequence[float]) -> str:
    interval: Interval | None = method_interval({seed: [mean] for seed, mean in enumerate(of_seeds)})
    return f"{np.mean(of_seeds):.3f} {interval or '(n < 3)'}"


def draw_curves(arms: Arms, columns: int = 3) -> Figure:
    """A panel per arm: the validation reward of every seed against processor time, and the mean over seeds."""
    rows = -(-len(arms) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axis, (arm, seeds) in zip(axes, arms.items(), strict=False):
        _draw_arm(axis, arm, seeds)
    for axis in axes[len(arms) :]:
        axis.set_visible(False)
    figure.supxlabel("processor time of the updates (s)", fontsize=9)
    figure.supylabel("validation reward", fontsize=9)
    return figure


def _draw_arm(axis: Axes, arm: str, seeds: Mapping[int, Values]) -> None:
    curves = [np.array(values["curve"]) for values in seeds.values()]
    for curve in curves:
        axis.plot(curve[:, 0], curve[:, 2], color="#4f9dde", alpha=0.35, linewidth=1)
    axis.plot(
        np.mean([c[:, 0] for c in curves], axis=0), np.mean([c[:, 2] for c in curves], axis=0), color="#1f5f9f", linewidth=2
    )
    axis.set_title(f"{arm} ({len(curves)} seeds)", fontsize=9)
    axis.grid(alpha=0.3)
