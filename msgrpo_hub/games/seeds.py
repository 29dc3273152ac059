"""Seeds: a sequence of seeds for each episode, and one independent random stream per purpose.

A seed is a hash of (game id, split, index, run, attempt), so no two games and no two splits share one. `splits.py` takes the
first attempt whose board belongs to the split. Separate streams derive from a seed. A group shares the stream of the initial
state; each member has its own streams of dynamics and sampling. With shared streams, a group would play the same episode G
times, and there would be nothing to learn.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

Split = Literal["train", "validation", "test"]
Purpose = Literal["initial_state", "dynamics", "sampling", "drawing", "dropout"]
_PURPOSES: tuple[Purpose, ...] = ("initial_state", "dynamics", "sampling", "drawing", "dropout")


def candidate_seed(game_id: str, split: Split, index: int, run: int = 0, attempt: int = 0) -> int:
    """A 63-bit seed, whatever its board.

    >>> candidate_seed("Snake-Solo-v1", "test", 0) == candidate_seed("Snake-Solo-v1:compass", "test", 0)
    True
    """
    name = f"{game_id.partition(':')[0]}/{split}/{index}/{run}" + (f"/{attempt}" if attempt else "")
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def stream(seed: int, purpose: Purpose, *keys: int) -> np.random.Generator:
    """The random stream of one purpose, and of further keys such as the member of a group; independent of all others."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _PURPOSES.index(purpose), *keys))))
