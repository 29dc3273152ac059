"""Seeds: which episodes belong to which split, and one independent random stream per purpose.

The seed of an episode is a hash of (game id, split, index), so splits never overlap and no two games share a seed.
Separate streams derive from it. A group shares the stream of the initial state; each member has its own streams of dynamics
and sampling. With shared streams, a group would play the same episode G times, and there would be nothing to learn.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

Split = Literal["train", "validation", "test"]
Purpose = Literal["initial_state", "dynamics", "sampling", "drawing", "dropout"]
_PURPOSES: tuple[Purpose, ...] = ("initial_state", "dynamics", "sampling", "drawing", "dropout")


def episode_seed(game_id: str, split: Split, index: int, run: int = 0) -> int:
    """A 63-bit seed for episode `index` of a split; `run` separates training runs. Variants share their game's seeds.

    >>> episode_seed("FrozenLake-NotSlippery-v1", "test", 0) == episode_seed("FrozenLake-NotSlippery-v1", "train", 0)
    False
    """
    game_id = game_id.partition(":")[0]
    digest = hashlib.sha256(f"{game_id}/{split}/{index}/{run}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, purpose: Purpose, *keys: int) -> np.random.Generator:
    """The random stream of one purpose, and of further keys such as the member of a group; independent of all others."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _PURPOSES.index(purpose), *keys))))
