"""Random maps of Frozen Lake, the same as gymnasium's, without loading gymnasium."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games.board import DIRECTIONS, Cell, inside, neighbour


def random_map(size: int, frozen_probability: float, seed: int) -> list[str]:
    """The map of gymnasium's `generate_random_map` for a seed: maps are sampled until the goal can be reached.

    >>> random_map(4, 0.8, seed=1)
    ['SHFH', 'FFHF', 'FFFF', 'FFFG']
    """
    rng = np.random.default_rng(seed)
    while True:
        board = rng.choice(["F", "H"], (size, size), p=[frozen_probability, 1 - frozen_probability])
        board[0, 0], board[-1, -1] = "S", "G"
        if (size - 1, size - 1) in _reachable(board):
            return ["".join(row) for row in board]


def _reachable(board: npt.NDArray[np.str_]) -> set[Cell]:
    """The cells reachable from the start without stepping into a hole."""
    reached: set[Cell] = {(0, 0)}
    frontier = [(0, 0)]
    while frontier:
        cell = frontier.pop()
        near = {neighbour(cell, action) for action in DIRECTIONS} - reached
        new = [cell for cell in near if inside(cell, len(board), len(board)) and board[cell] != "H"]
        reached.update(new)
        frontier += new
    return reached
