"""What does an adapter of one game do in another?"""

from __future__ import annotations

from collections.abc import Mapping

from benchmark.experiments.arms import Comparison
from benchmark.experiments.experiment import Values

UNREADABLE = "Empty-MiniGrid-v1"
"""A game without a parsed reply of any arm: the base does not know its words."""


class Transfer(Comparison):
    """The headline names the game that no arm can answer."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        found, game = super().headline(rows), UNREADABLE.removesuffix("-v1")
        return f"{found} On {game} arms cannot be compared: no reply there names an action." if found else ""


EXPERIMENT = Transfer("transfer", "What does an adapter of one game do in another?")
