"""Cells, directions and the text of a board, shared by the games.

A cell is (row, column), counted from (0, 0) at the top left. The order of the actions is gymnasium's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Cell = tuple[int, int]
View = Literal["full", "coordinates", "grid"]
"""The parts of an observation: the list of coordinates, the grid, or both."""

DIRECTIONS: dict[str, Cell] = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
"""Action → (change of row, change of column)."""

MOVES = "Up and Down change the row by one, Left and Right change the column by one."
CELL_RULES = ("A cell is (row, column); (0, 0) is the top left.", MOVES)


def neighbour(cell: Cell, action: str, directions: Mapping[str, Cell] = DIRECTIONS) -> Cell:
    """The cell that an action leads to.

    >>> neighbour((2, 3), "Up")
    (1, 3)
    """
    down, right = directions[action]
    return cell[0] + down, cell[1] + right


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
    lines = [] if view == "grid" else [*facts]
    if view != "coordinates":
        lines += ["Grid:", *(" ".join(row) for row in grid)]
    return "\n".join(lines)


def canonical(rows: Sequence[str]) -> str:
    """One text for a board, its mirror images and its quarter turns: the first of them in alphabetical order.

    >>> canonical(["@.", ".G"]) == canonical([".@", "G."]) == canonical(["G.", ".@"])
    True
    """
    turned, images = list(rows), []
    for _ in range(4):
        turned = ["".join(column) for column in zip(*turned[::-1], strict=True)]
        images += [turned, turned[::-1]]
    flat = min(len(rows), len(rows[0]))  # the longer side of a rectangle is horizontal
    return "\n".join(min(image for image in images if len(image) == flat))
