"""Cells, directions and the text of a board, shared by the games.

A cell is (row, column), counted from (0, 0) at the top left. The order of the actions is gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, Literal

Cell = tuple[int, int]
View = Literal["full", "coordinates", "grid"]
"""The parts of an observation: the list of coordinates, the grid, or both."""

DIRECTIONS: dict[str, Cell] = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
"""Action → (change of row, change of column)."""

MOVES = "Up and Down change the row by one, Left and Right change the column by one."
CELL_RULES = ("A cell is (row, column); (0, 0) is the top left.", MOVES)


def neighbour(cell: Cell, action: str) -> Cell:
    """The cell one step away.

    >>> neighbour((2, 3), "Up")
    (1, 3)
    """
    return moved(cell, DIRECTIONS[action])


def moved(cell: Cell, direction: Cell) -> Cell:
    """The cell that a direction leads to."""
    return cell[0] + direction[0], cell[1] + direction[1]


def inside(cell: Cell, rows: int, columns: int) -> bool:
    """Whether a cell is on a board of the given size."""
    return 0 <= cell[0] < rows and 0 <= cell[1] < columns


def cells_text(cells: Iterable[Cell]) -> str:
    """Cells as text, in the given order.

    >>> cells_text([(1, 2), (0, 3)]), cells_text([])
    ('(1, 2) (0, 3)', 'none')
    """
    return " ".join(f"({row}, {column})" for row, column in cells) or "none"


def grid_rows(rows: int, columns: int, symbols: Mapping[Cell, str], empty: str = ".") -> list[str]:
    """The board as `rows` strings of `columns` symbols.

    >>> grid_rows(2, 3, {(0, 0): "@", (1, 2): "G"})
    ['@..', '..G']
    """
    return ["".join(symbols.get((row, column), empty) for column in range(columns)) for row in range(rows)]


def observation(facts: Sequence[str], grid: Sequence[str], view: View) -> str:
    """The text observation: lines of coordinates, then the grid, as far as the view shows them."""
    drawn = ["Grid:", *(" ".join(row) for row in grid)]
    return "\n".join([*(facts if view != "grid" else []), *(drawn if view != "coordinates" else [])])


def canonical(rows: Sequence[str]) -> str:
    """One text for a board, its mirror images and its quarter turns: the first of them in alphabetical order.

    >>> canonical(["@.", ".G"]) == canonical([".@", "G."]) == canonical(["G.", ".@"])
    True
    """
    cells, width = "".join(rows), max(len(rows), len(rows[0]))
    first = min("".join(image(cells)) for image in _images(len(rows), len(rows[0])))
    return "\n".join(first[start : start + width] for start in range(0, len(first), width))


@cache
def _images(rows: int, columns: int) -> list[Callable[[str], tuple[str, ...]]]:
    """Functions that reorder the cells of a board into its eight images; of a rectangle, the four with the longer side flat."""
    cells = [list(range(row * columns, (row + 1) * columns)) for row in range(rows)]
    images: list[Callable[[str], tuple[str, ...]]] = []
    for turned in (cells, cells[::-1]):
        for _ in range(4):
            if len(turned) == min(rows, columns):
                images.append(itemgetter(*(cell for row in turned for cell in row)))
            turned = [list(column) for column in zip(*turned[::-1], strict=True)]
    return images


class SquareBoard:
    """A game on a square board with the four directions as actions."""

    size: int
    actions = tuple(DIRECTIONS)
    directions: ClassVar[Mapping[str, Cell]] = DIRECTIONS

    @property
    def rows(self) -> int:
        return self.size

    @property
    def columns(self) -> int:
        return self.size

    def grid(self, state: Any) -> list[str]:
        raise NotImplementedError

    def board(self, state: Any) -> str:
        """The symbols of a board, equal for mirrored and turned boards."""
        return canonical(self.grid(state))

    def moves(self, cell: Cell, blocked: Collection[Cell] = ()) -> tuple[str, ...]:
        """The actions that lead from a cell to a cell of the board that is not blocked."""
        ahead = {action: neighbour(cell, action) for action in self.actions}
        return tuple(action for action, end in ahead.items() if inside(end, self.size, self.size) and end not in blocked)
