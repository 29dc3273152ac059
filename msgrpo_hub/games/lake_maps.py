"""Random maps of Frozen Lake, the same as gymnasium's, without loading gymnasium."""

from __future__ import annotations

import numpy as np


def random_map(size: int, frozen_probability: float, seed: int) -> list[str]:
    """The map of gymnasium's `generate_random_map` for a seed: maps are sampled until the goal can be reached.

    >>> random_map(4, 0.8, seed=1)
    ['SHFH', 'FFHF', 'FFFF', 'FFFG']
    """
    rng = np.random.default_rng(seed)
    frozen = frozen_probability / (frozen_probability + (1 - frozen_probability))  # as `Generator.choice` normalises it
    while True:
        ice = [draw < frozen for draw in rng.random(size * size).tolist()]
        ice[0] = ice[-1] = True
        if _is_connected(ice, size):
            cells = "".join("F" if frozen else "H" for frozen in ice)
            rows = f"S{cells[1:-1]}G"
            return [rows[start : start + size] for start in range(0, size * size, size)]


def _is_connected(ice: list[bool], size: int) -> bool:
    """Whether a path over the ice joins the first cell to the last; a set of cells is the bits of one integer."""
    open_cells = sum(1 << cell for cell, frozen in enumerate(ice) if frozen)
    row = (1 << size) - 1
    not_first = sum((row - 1) << start for start in range(0, size * size, size))
    not_last = not_first >> 1
    reached, before = 1, 0
    while reached != before:
        before = reached
        near = reached << size | reached >> size | (reached & not_last) << 1 | (reached & not_first) >> 1
        reached |= near & open_cells
    return bool(reached >> (size * size - 1))
