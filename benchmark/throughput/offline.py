"""What stands in for gymnasium, tomli_w and tqdm on a machine that has PyTorch, transformers and peft only.

Of gymnasium the games need the maps of Frozen Lake, made here as it makes them; the rest is registered with nobody.
"""

from __future__ import annotations

import sys
from importlib import util
from types import ModuleType
from typing import Any

import numpy as np


class _Anything:
    """A class that accepts whatever it is given and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __class_getitem__(cls, _: Any) -> type[_Anything]:
        return cls


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


def stand_in() -> None:
    """Puts a stand-in where a package is missing."""
    if util.find_spec("gymnasium") is None:
        for name in ("gymnasium", "gymnasium.envs", "gymnasium.envs.toy_text", "gymnasium.envs.toy_text.frozen_lake"):
            sys.modules[name] = _StandIn(name)
        sys.modules["gymnasium"].registry = {}  # type: ignore[attr-defined]
        sys.modules["gymnasium.envs.toy_text.frozen_lake"].generate_random_map = random_map  # type: ignore[attr-defined]
    if util.find_spec("tomli_w") is None:
        sys.modules["tomli_w"] = _StandIn("tomli_w")


def random_map(size: int, p: float, seed: int) -> list[str]:
    """The map that gymnasium's `generate_random_map` makes of this seed: drawn again until the goal can be reached."""
    rng = np.random.default_rng(seed)
    while True:
        board = rng.choice(["F", "H"], (size, size), p=[p, 1 - p])
        board[0][0], board[-1][-1] = "S", "G"
        reached, edge = {(0, 0)}, [(0, 0)]
        while edge:
            r, c = edge.pop()
            near = {(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)} - reached
            new = [(a, b) for a, b in near if 0 <= a < size and 0 <= b < size and board[a][b] != "H"]
            reached.update(new)
            edge += new
        if (size - 1, size - 1) in reached:
            return ["".join(row) for row in board]
