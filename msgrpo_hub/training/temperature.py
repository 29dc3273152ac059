"""`--temperature adaptive`: acts hotter while returns stagnate, and cools down again as soon as they do not. The rule is ours.

The paper asks whether an adaptive temperature helps seeds that stagnate, and gives no rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

COLDEST, HOTTEST = 1.0, 1.5
"""The temperature stays between these."""

STEP = 1.1
"""It rises and falls by this factor an update."""

PATIENCE = 5
"""Updates without a better mean return after which returns stagnate."""

SMOOTHING = 0.2
"""Weight of the newest update in the mean return."""

FORGETTING = 0.1
"""Share of the way to the mean return that the best one goes back in an update without a better one: it was reached colder."""


@dataclass
class AdaptiveTemperature:
    """The temperature of the next update. All fields are its state; a checkpoint holds them.

    Returns stagnate if no update of the last `PATIENCE` had a better mean return, or if half of the groups or more have no
    variance. They do not if half of the groups or more are solved: every episode has the largest return of its game.
    """

    value: float = COLDEST
    mean: float = 0.0
    """Exponential mean of the composite return."""
    best: float = -math.inf
    """The largest of these means, slowly forgotten."""
    waited: int = 0
    """Updates since it rose."""

    def update(self, returns: Sequence[Tensor], largest: Sequence[float]) -> None:
        """Learns from an update.

        Args:
            returns: per group (G,), the composite returns C.
            largest: per group, the largest possible return of its game; infinite if unknown.
        """
        self._remember(float(torch.cat([*returns]).mean()))
        factor = STEP if self._stagnates(returns, largest) else 1 / STEP
        self.value = min(max(self.value * factor, COLDEST), HOTTEST)

    def _remember(self, level: float) -> None:
        self.mean = level if self.best == -math.inf else self.mean + SMOOTHING * (level - self.mean)
        better = self.mean > self.best
        self.best = self.mean if better else self.best + FORGETTING * (self.mean - self.best)
        self.waited = 0 if better else self.waited + 1

    def _stagnates(self, returns: Sequence[Tensor], largest: Sequence[float]) -> bool:
        solved = sum(bool((of_group >= most).all()) for of_group, most in zip(returns, largest, strict=True))
        silent = sum(bool((of_group == of_group[0]).all()) for of_group in returns)
        return 2 * solved < len(returns) and (self.waited >= PATIENCE or 2 * silent >= len(returns))

    def state(self) -> dict[str, float]:
        """For `restore`."""
        return asdict(self)

    def restore(self, state: Mapping[str, float]) -> None:
        """Puts a state in place."""
        for name, value in state.items():
            setattr(self, name, value)
