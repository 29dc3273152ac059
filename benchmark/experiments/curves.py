"""The table and the figure of learning curves: several arms, each with several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmark.experiments.dots import draw_dots, height, in_lines
from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, LEVEL, NO_INTERVAL, Interval, method_interval, over_seeds, welch
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import make_game

NOTHING = "nothing yet"
"""Shown for a comparison without any seeds."""

Arms = Mapping[str, Mapping[int, Values]]
"""Arm → seed → the values of `training.learning_curve`."""


def curve_table(arms: Arms, game: str) -> str:
    """Validation reward at the end; test reward on a game, its interval and spread over training seeds."""
    head = ["arm", "seeds", "validation reward", "test reward [95 % over seeds]", "std over seeds", "lowest seed"]
    return markdown(head, [_line(arm, seeds, game) for arm, seeds in arms.items()])


def _line(arm: str, seeds: Mapping[int, Values], game: str) -> list[str]:
    of_seeds = list(means_of(seeds).values())
    validation = np.mean([values["curve"][-1][-1] for values in seeds.values()])
    if not updates_of(seeds):
        return [arm, "–", f"{validation:.3f}", f"{of_seeds[0]:.3f}", "–", "–"]
    spread = f"{np.std(of_seeds, ddof=1):.3f}" if len(of_seeds) > 1 else "–"
    return [arm, str(len(of_seeds)), f"{validation:.3f}", with_interval(of_seeds, game=game), spread, f"{min(of_seeds):.3f}"]


def updates_of(seeds: Mapping[int, Values]) -> int:
    """The updates of all seeds; none of an arm that is the base itself, and has neither seeds nor a spread over them."""
    return sum(values["curve"][-1][0] for values in seeds.values())


def with_interval(of_seeds: Sequence[float], form: str = ".3f", game: str = "") -> str:
    """The mean, and its 95 % interval over training seeds; of rewards on a lake, within what they can be.

    >>> with_interval([0.0, 1.0]), with_interval([0.9, 1.0, 0.95], ".2f", "FrozenLake-NotSlippery-v1")
    ('0.500 (no interval)', '0.95 [0.826, 1.000]')
    >>> with_interval([1.0, 1.0, 1.0])
    '1.000 (no interval)'
    """
    bounds = make_game(game).reward_range if game.startswith("FrozenLake") else None  # means in other games stay far from theirs
    found = over_seeds(dict(enumerate(of_seeds)), bounds)
    return f"{found.mean:{form}} {found.interval or NO_INTERVAL}"


def mean_with_interval(seeds: Mapping[int, Values], game: str) -> str:
    """The mean reward on a game that was played in the end, with its interval over training seeds."""
    of_seeds = list(means_of(seeds, game).values())
    return with_interval(of_seeds, game=game) if updates_of(seeds) else f"{of_seeds[0]:.3f}"


class Difference(NamedTuple):
    """An arm against the first, over the seeds that both have."""

    arm: str
    mean: float
    interval: Interval | None
    """95 %; None for fewer than three seeds, or if all have the same."""
    seeds: int

    @property
    def side(self) -> int:
        """1 above zero, -1 below, 0 if the interval holds zero or there is none."""
        return int(self.interval.low > 0) - int(self.interval.high < 0) if self.interval else 0

    def __str__(self) -> str:
        return f"{self.mean:+.3f} {self.interval or NO_INTERVAL}"


def differences(arms: Arms, game: str = "", level: float = LEVEL) -> list[Difference]:
    """Those of every arm that has a seed of the first, the largest first.

    Args:
        arms: what has run.
        game: one that the arms played in the end; by default their own.
        level: of the intervals.
    """
    (_, reference), *others = arms.items()
    found = [_difference(arm, seeds, reference, game, level) for arm, seeds in others]
    return sorted((each for each in found if each), key=lambda each: -each.mean)


def after_holm(arms: Arms, level: float = LEVEL) -> list[str]:
    """The arms that stay apart from the first with Holm's correction for the number of arms that have an interval.

    An interval of level 1 − s leaves out zero where p is below s; Holm's s are 0.05 / m, then 0.05 / (m − 1) and so on.
    """
    family = sum(each.interval is not None for each in differences(arms))
    kept: list[str] = []
    while len(kept) < family:
        strict = differences(arms, level=1 - (1 - level) / (family - len(kept)))
        found = [each.arm for each in strict if each.side and each.arm not in kept]
        if not found:
            break
        kept += found
    return kept


def _difference(
    arm: str, seeds: Mapping[int, Values], reference: Mapping[int, Values], game: str, level: float
) -> Difference | None:
    """Seed by seed; an arm without training has played once, and of it the episodes are the sample (Welch's interval)."""
    means, own = means_of(reference, game), means_of(seeds, game)
    common = [seed for seed in own if seed in means]
    if not common:
        return None
    apart = [own[seed] - means[seed] for seed in common]
    if updates_of(reference) and updates_of(seeds):
        return Difference(arm, float(np.mean(apart)), method_interval(apart, level), len(common))
    before, after = (_sample(each, common, game) for each in (reference, seeds))
    interval = welch(before, after, level) if min(len(before), len(after)) >= FEWEST_SEEDS else None
    return Difference(arm, float(np.mean(apart)), interval, len(common))


def _sample(seeds: Mapping[int, Values], common: Sequence[int], game: str) -> NDArray[np.float64]:
    """The means of trained seeds; the rewards of an arm that is the same for all.

    Rewards of 0 and 1 get one of each more (Agresti and Caffo, 2000): where success is rare, a few episodes spread too little.
    """
    if updates_of(seeds):
        return np.array([means_of(seeds, game)[seed] for seed in common])
    rewards = rewards_of(seeds[common[0]], game)
    return np.array([*rewards, 0.0, 1.0] if {*rewards} <= {0.0, 1.0} else rewards, dtype=float)


def findings(arms: Arms, game: str = "") -> str:
    """The first arm, and each other's difference from it; `game` as for `differences`."""
    first, reference = next(iter(arms.items()))
    told = "; ".join(f"{each.arm} {each}" for each in differences(arms, game))
    return f"{first}: {np.mean(list(means_of(reference, game).values())):.3f}. Against it: {told or NOTHING}."


def means_of(seeds: Mapping[int, Values], game: str = "") -> dict[int, float]:
    """Seed → its mean test reward, on a game that was played in the end or by default on its own."""
    return {seed: float(np.mean(rewards_of(values, game))) for seed, values in seeds.items()}


def rewards_of(values: Values, game: str = "") -> Sequence[float]:
    """The test rewards of one seed, of a game as for `means_of`."""
    found: Sequence[float] = values["also"][game] if game else values["test_rewards"]
    return found


def draw_curves(titled: Sequence[tuple[str, Arms]]) -> Figure:
    """A panel per group of arms: the mean over seeds of each arm's validation reward, and thin, that of every seed."""
    heights = [2.6 + 0.2 * len(arms) for _, arms in titled]
    figure = Figure(figsize=(5.0, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(titled), 1, squeeze=False, height_ratios=heights).flatten()
    for axes, (title, arms) in zip(panels, titled, strict=True):
        for number, (arm, seeds) in enumerate(arms.items()):
            curves = np.array([values["curve"] for values in seeds.values()])  # (seeds, evaluations, 2)
            for curve in curves:
                axes.plot(*curve.T, color=f"C{number}", alpha=0.25, linewidth=0.7)
            axes.plot(*curves.mean(0).T, color=f"C{number}", linewidth=2, label=_line_name(arm, seeds))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("update", fontsize=9)
        axes.set_ylabel("validation reward", fontsize=9)
        axes.tick_params(labelsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def draw_ends(titled: Sequence[tuple[str, Arms]], *, best_first: bool = False) -> Figure:
    """A line per arm with its number of seeds: the test reward of each, and their mean; dotted, the mean of the first arm.

    Args:
        titled: groups of arms, each with a title.
        best_first: orders the arms by their means.
    """
    named = [(title, {_line_name(arm, seeds): seeds for arm, seeds in arms.items()}) for title, arms in titled]
    heights = [height(ends) for _, ends in named]
    figure = Figure(figsize=(5.0, 0.6 + 0.27 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(titled), 1, squeeze=False, height_ratios=heights).flatten()
    for axes, (_, ends) in zip(panels, named, strict=True):
        lines = {name: list(means_of(seeds).values()) for name, seeds in ends.items()}
        first = float(np.mean(next(iter(lines.values()))))
        if best_first:
            lines = dict(sorted(lines.items(), key=lambda line: -np.mean(line[1])))
        draw_dots(axes, lines, first, plain={name for name, seeds in ends.items() if not updates_of(seeds)})
    figure.suptitle("; ".join(title for title, _ in titled), fontsize=10)
    figure.supxlabel("test reward of every seed (their number), and the mean;\ndotted: of the first arm of the table", fontsize=9)
    return figure


def _line_name(arm: str, seeds: Mapping[int, Values]) -> str:
    return in_lines(f"{arm} ({len(seeds)})" if updates_of(seeds) else arm)
