"""What the units measured, by checkpoint: statistics of the estimators, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from benchmark.experiments.exact_gradient.estimators import ESTIMATORS, LATER, MS_GRPO, Estimator
from benchmark.experiments.experiment import Values, configuration

CONFIGURATION = configuration("exact_gradient")
EPISODES = CONFIGURATION["groups"] * CONFIGURATION["group_size"]
"""Episodes that an update plays."""

RESOLVED = 0.05
"""Largest standard error of a cosine of the expectation that is shown."""

JOINED = ("estimators", "credit_seconds")
"""Values by estimator or by credit."""

PAPER, ALL = Estimator(MS_GRPO, "AAW"), Estimator(MS_GRPO)
"""The paper's estimator, and the same from all episodes of a group."""


class Checkpoint(NamedTuple):
    """The values of one unit."""

    game: str
    update: int
    values: Values

    @property
    def name(self) -> str:
        return f"{self.game}, {self.update}"

    def of(self, estimator: Estimator, statistic: str) -> float:
        """A statistic; infinite where it is not finite."""
        value = self.values["estimators"][estimator.name][statistic][0]
        return math.inf if value is None else float(value)

    def error(self, estimator: Estimator, statistic: str) -> float:
        """Its standard error; infinite where it is not finite."""
        error = self.values["estimators"][estimator.name][statistic][1]
        return math.inf if error is None else float(error)

    def resolves(self, estimator: Estimator) -> bool:
        """Whether the simulated updates are enough to know the expectation of an estimator."""
        return self.error(estimator, "cosine_of_mean") <= RESOLVED

    def episodes(self, estimator: Estimator) -> float:
        """Episodes to play until the mean of their updates has cosine `TARGET`; infinite if the bias forbids it."""
        return float(self.of(estimator, "updates_needed") * EPISODES)

    def seconds(self, estimator: Estimator) -> float:
        """Processor time of acting, crediting and learning for as many episodes."""
        spent = self.values["seconds"]
        learning = spent["learning all" if estimator.selection == "all" else "learning selected"]
        critic = spent["critic update"] if estimator.credit.startswith("critic") else 0.0
        crediting = self.values["credit_seconds"][estimator.credit] + critic
        return float(self.of(estimator, "updates_needed") * (spent["acting"] + learning + crediting))


def checkpoints_of(rows: Mapping[str, Values]) -> list[Checkpoint]:
    """The checkpoints by their names; a unit of estimators that came later adds to the first unit of its checkpoint."""
    found = []
    for unit, values in rows.items():
        game, _, update, *added = unit.split("-")
        if not added:
            more = [rows[name] for name in (f"{unit}-{later}" for later in LATER) if name in rows]
            joined = {part: {k: v for row in (*more, values) for k, v in row[part].items()} for part in JOINED}
            norms = {"later_norms": [row["gradient_norm"] for row in more]}
            found.append(Checkpoint(game, int(update.removeprefix("update")), values | joined | norms))
    return found


def measured(points: Sequence[Checkpoint]) -> list[Estimator]:
    """The estimators that every checkpoint has; those that came later stand before the critics."""
    critics = next(k for k, estimator in enumerate(ESTIMATORS) if estimator.credit.startswith("critic"))
    order = [*ESTIMATORS[:critics], *chain(*LATER.values()), *ESTIMATORS[critics:]]
    return [estimator for estimator in order if all(estimator.name in point.values["estimators"] for point in points)]


def span(values: Sequence[float], digits: int = 3) -> str:
    """The smallest and the largest."""
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def relative(points: Sequence[Checkpoint], cost: Callable[[Checkpoint, Estimator], float], estimator: Estimator) -> str:
    """The geometric mean over checkpoints of a cost, as a multiple of that of the paper's credit on all episodes; its range."""
    ratios = [cost(point, estimator) / cost(point, ALL) for point in points if point.resolves(ALL)]
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not finite:
        return "not reached"
    least, most = (f"{end(finite):.2f}" for end in (min, max))
    ends = [f"{least} to {most}"] if least != most else []
    missed = [f"not reached at {len(ratios) - len(finite)} of {len(ratios)} checkpoints"] if len(finite) < len(ratios) else []
    around = f" ({'; '.join([*ends, *missed])})" if ends or missed else ""
    return f"{math.exp(np.mean(np.log(finite))):.2f}×{around}"
