"""How lakes are sampled: by gymnasium's generator, without loading gymnasium, or as other projects do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from msgrpo_hub.games.board import Cell, inside, neighbour

Lake = tuple[tuple[Cell, ...], Cell, Cell]
"""The holes in reading order, the start and the goal."""


@dataclass(frozen=True, kw_only=True)
class Maps:
    """How a game samples its lakes: by default with gymnasium's `generate_random_map`, from the top left to the bottom right."""

    rows: tuple[str, ...] = ()
    """Always this lake, in gymnasium's letters."""
    holes: int | None = None
    """The number of holes; all arrangements with a path are equally likely (TextArena)."""
    random_ends: bool = False
    """Start and goal are any two cells, sampled with the holes until a path connects them (RAGEN, ROLL, VAGEN)."""
    ice: tuple[float, float] | None = None
    """The probability that a cell is ice is uniform between these (rLLM, Trinity-RFT)."""
    depth: int | None = None
    """A depth-first search for the path gives up this far from the start, so it refuses some lakes (rLLM, Trinity-RFT)."""

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:
        """Samples a lake of `size` × `size` cells whose goal can be reached; a cell is ice with probability `frozen`."""
        start, goal = 0, size * size - 1
        if self.rows or (self.holes is None and not self.random_ends):
            rows = self.rows or random_map(size, frozen, seed=int(rng.integers(2**31)))
            holes, starts, goals = ([divmod(i, size) for i, cell in enumerate("".join(rows)) if cell == kind] for kind in "HSG")
            return tuple(holes), starts[0], goals[0]
        if self.ice:
            frozen = float(rng.uniform(*self.ice))
        while True:
            if self.holes is not None:
                ice = np.ones(size * size, bool)
                ice[1 + rng.choice(size * size - 2, self.holes, replace=False)] = False
            else:
                ice = rng.random(size * size) < frozen
                start, goal = rng.choice(size * size, 2, replace=False).tolist()
                ice[[start, goal]] = True
            lake = ice.tolist(), size, start, goal
            if is_connected(*lake) if self.depth is None else is_found(*lake, self.depth):
                closed = np.flatnonzero(~ice).tolist()
                return tuple(divmod(cell, size) for cell in closed), divmod(start, size), divmod(goal, size)

    def common(self, size: int) -> Sequence[Lake]:
        """The lakes with about a tenth of the probability or more, or all of 2 × 2 cells: they are training boards."""
        if self.rows or self.holes is not None:
            return []
        if not self.random_ends:
            return [((), (0, 0), (size - 1, size - 1))]
        lakes = permutations([(0, 0), (0, 1), (1, 0), (1, 1)]) if size == 2 else ()
        return [(lake[2 : 2 + holes], lake[0], lake[1]) for lake in lakes for holes in range(3)]


def random_map(size: int, frozen_probability: float, seed: int) -> list[str]:
    """The map of gymnasium's `generate_random_map` for a seed: maps are sampled until the goal can be reached.

    >>> random_map(4, 0.8, seed=1)
    ['SHFH', 'FFHF', 'FFFF', 'FFFG']
    """
    rng = np.random.default_rng(seed)
    frozen = frozen_probability / (frozen_probability + (1 - frozen_probability))  # as `Generator.choice` normalises it
    while True:
        ice = [number < frozen for number in rng.random(size * size).tolist()]
        ice[0] = ice[-1] = True
        if is_connected(ice, size, 0, size * size - 1):
            cells = "".join("F" if frozen else "H" for frozen in ice)
            rows = f"S{cells[1:-1]}G"
            return [rows[start : start + size] for start in range(0, size * size, size)]


def is_connected(ice: list[bool], size: int, start: int, goal: int) -> bool:
    """Whether a path over the ice connects two cells. A set of cells is the bits of one integer."""
    open_cells = sum(1 << cell for cell, frozen in enumerate(ice) if frozen)
    row = (1 << size) - 1
    not_first = sum((row - 1) << first for first in range(0, size * size, size))
    not_last = not_first >> 1
    reached, before = 1 << start, 0
    while reached != before:
        before = reached
        near = reached << size | reached >> size | (reached & not_last) << 1 | (reached & not_first) >> 1
        reached |= near & open_cells
    return bool(reached >> goal & 1)


def is_found(ice: list[bool], size: int, start: int, goal: int, depth: int) -> bool:
    """Whether rLLM's depth-first search finds the goal. It does not continue from cells further than `depth` along its path."""
    frontier, seen = [(divmod(start, size), 0)], set()
    while frontier:
        cell, steps = frontier.pop()
        if steps > depth or cell in seen:
            continue
        seen.add(cell)
        for action in ("Down", "Right", "Up", "Left"):
            near = neighbour(cell, action)
            if near == divmod(goal, size):
                return True
            if inside(near, size, size) and ice[near[0] * size + near[1]]:
                frontier.append((near, steps + 1))
    return False
