"""A player that reads the prompts and knows none of our code, and the variants that it plays."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from msgrpo_hub.games import GAMES, VARIANTS

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Standard-v1"
NO_SUCH = {f"Snake-DownHill-v1:{name}" for name in ("rotated", "compass", "permuted-actions")}
IDS = [f"{game}:{variant}" for game in GAMES for variant in VARIANTS if f"{game}:{variant}" not in NO_SUCH]
seeds = st.integers(0, 2**63 - 1)

PLAIN_MOVES = "Up and Down change the row by one, Left and Right change the column by one."

Cell = tuple[int, int]


# ---- a player that only reads: it knows the format of the prompts, and none of our code


def read_moves(system: str) -> dict[str, Cell]:
    """Action → (change of row, change of column), from the rules."""
    if PLAIN_MOVES in system:
        return {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
    signs = {"above": -1, "below": 1, "on the left": -1, "on the right": 1}
    moves, axis = {}, ""
    for name, at, step in re.findall(r"(\w+)(?: changes the (row|column))? by (-?1)\b", system):
        axis = at or axis
        moves[name] = (int(step), 0) if axis == "row" else (0, int(step))
    for name, axis, side in re.findall(r"(\w+)(?: moves)? to the (row|column) (above|below|on the left|on the right)", system):
        moves[name] = (signs[side], 0) if axis == "row" else (0, signs[side])
    return moves


def read_legend(system: str) -> dict[str, str]:
    """Symbol → what it stands for, from the last rule."""
    return dict(re.findall(r"(\S) is (?:an? |the )?([a-z ]+)[,.]", system.splitlines()[-1]))


def read_grid(observation: str) -> list[list[str]]:
    return [line.split(" ") for line in observation.partition("Grid:\n")[2].splitlines()]


def read_coordinates(observation: str) -> dict[str, list[Cell]]:
    """Label → cells."""
    lines = [line.split(": ", 1) for line in observation.partition("Grid:")[0].splitlines() if ":" in line]
    return {label: [(int(r), int(c)) for r, c in re.findall(r"\((\d+), (\d+)\)", cells)] for label, cells in lines}


def read_board(system: str, observation: str) -> dict[str, set[Cell]]:
    """What stands where: from the coordinates if they are shown, else from the grid."""
    names = {"You": "you", "Goal": "goal", "Holes": "hole", "Your head": "your head", "Your body": "your body"}
    names |= {"Opponent head": "opponent head", "Opponent body": "opponent body", "Apples": "apple"}
    if listed := read_coordinates(observation):
        return {names[label]: set(cells) for label, cells in listed.items() if label in names}
    grid, legend = read_grid(observation), read_legend(system)
    board: dict[str, set[Cell]] = {name: set() for name in legend.values()}
    for r, row in enumerate(grid):
        for c, symbol in enumerate(row):
            board[legend[symbol]].add((r, c))
    return board
