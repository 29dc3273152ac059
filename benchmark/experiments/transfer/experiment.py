"""What does an adapter of one game do in another?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmark.experiments.arms import compare_arms
from benchmark.experiments.experiment import Values

COMPARED = compare_arms("transfer", "What does an adapter of one game do in another?")

UNREADABLE = "Empty-MiniGrid-v1"
"""A game in which no arm writes a reply that can be read, as `msgrpo play` shows: the base knows none of its words."""


def headline(rows: Mapping[str, Values]) -> str:
    """What the arms do on each game, and where they cannot answer at all."""
    found = COMPARED.headline(rows)
    game = UNREADABLE.removesuffix("-v1")
    return f"{found} On {game} nothing can be told apart: no reply there can be read as an action." if found else ""


EXPERIMENT = replace(COMPARED, headline=headline)
