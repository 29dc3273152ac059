"""How lakes are sampled: by gymnasium's generator, without loading gymnasium, or as other projects do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from msgrpo_hub.games.board import Cell, inside, neighbour

Lake = tuple[tuple[Cell, ...], Cell, Cell]
"""The holes in reading order, the start and the goal."""


@dataclass(frozen=True)
class Maps:
    """gymnasium's `generate_random_map`: from the top left to the bottom right."""

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:
        """Samples a lake of `size` × `size` cells whose goal can be reached; a cell is ice with probability `frozen`."""
        return _lake(random_map(size, frozen, seed=int(rng.integers(2**31))))

    def common(self, size: int) -> Sequence[Lake]:
        """The lakes with about a tenth of the probability or more; they are training boards."""
        return [((), (0, 0), (size - 1, size - 1))]


GYMNASIUM = Maps()


@dataclass(frozen=True)
class GivenMap(Maps):
    """Always the same lake, from rows in gymnasium's letters."""

    rows: tuple[str, ...]

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:  # noqa: ARG002
        return _lake(self.rows)

    def common(self, size: int) -> Sequence[Lake]:  # noqa: ARG002
        return []


@dataclass(frozen=True)
class CountedHoles(Maps):
    """From the top left to the bottom right with a given number of holes; all arrangements are equally likely (TextArena)."""

    count: int

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:  # noqa: ARG002
        while True:
            ice = np.ones(size * size, bool)
            ice[1 + rng.choice(size * size - 2, self.count, replace=False)] = False
            if is_connected(ice.tolist(), size, 0, size * size - 1):
                return _holes(ice, size), (0, 0), (size - 1, size - 1)

    def common(self, size: int) -> Sequence[Lake]:  # noqa: ARG002
        return []


@dataclass(frozen=True)
class RandomEnds(Maps):
    """Start and goal are any two cells, sampled with the holes until a path connects them (RAGEN, ROLL, VAGEN)."""

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:
        while True:
            ice = rng.random(size * size) < frozen
            start, goal = rng.choice(size * size, 2, replace=False).tolist()
            ice[[start, goal]] = True
            if self.accepts(ice.tolist(), size, start, goal):
                return _holes(ice, size), divmod(start, size), divmod(goal, size)

    def accepts(self, ice: list[bool], size: int, start: int, goal: int) -> bool:
        """Whether a lake is used."""
        return is_connected(ice, size, start, goal)

    def common(self, size: int) -> Sequence[Lake]:
        """All lakes of 2 × 2 cells: six are too few to divide, so all splits share them."""
        lakes = permutations([(0, 0), (0, 1), (1, 0), (1, 1)]) if size == 2 else ()
        return [(lake[2 : 2 + holes], lake[0], lake[1]) for lake in lakes for holes in range(3)]


@dataclass(frozen=True)
class RllmMaps(RandomEnds):
    """Random ends, a random share of ice, and a depth-first search that gives up on long paths (rLLM, Trinity-RFT)."""

    ice: tuple[float, float] = (0.6, 0.85)
    """The probability that a cell is ice is uniform between these."""
    depth: int = 8
    """The search does not continue from cells further along its path, so it refuses some lakes with a short path."""

    def sample(self, size: int, frozen: float, rng: np.random.Generator) -> Lake:  # noqa: ARG002
        return super().sample(size, float(rng.uniform(*self.ice)), rng)

    def accepts(self, ice: list[bool], size: int, start: int, goal: int) -> bool:
        frontier, seen = [(divmod(start, size), 0)], set()
        while frontier:
            cell, steps = frontier.pop()
            if steps > self.depth or cell in seen:
                continue
            seen.add(cell)
            for action in ("Down", "Right", "Up", "Left"):
                near = neighbour(cell, action)
                if near == divmod(goal, size):
                    return True
                if inside(near, size, size) and ice[near[0] * size + near[1]]:
                    frontier.append((near, steps + 1))
        return False


def _holes(ice: np.ndarray, size: int) -> tuple[Cell, ...]:
    return tuple(divmod(cell, size) for cell in np.flatnonzero(~ice).tolist())


def _lake(rows: Sequence[str]) -> Lake:
    """The lake of a map in gymnasium's letters."""
    cells = {letter: [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell == letter] for letter in "SGH"}
    return tuple(cells["H"]), cells["S"][0], cells["G"][0]


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
