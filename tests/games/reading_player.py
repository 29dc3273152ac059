"""A player that only reads prompts and imports no rules, and the variants that it plays."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import GAMES, VARIANTS

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Standard-v1"
NO_SUCH = {f"Snake-DownHill-v1:{name}" for name in ("rotated", "compass", "permuted-actions")}
IDS = [f"{game}:{variant}" for game in GAMES for variant in VARIANTS if f"{game}:{variant}" not in NO_SUCH]
PLAIN_MOVES = "Up and Down change the row by one, Left and Right change the column by one."

Cell = tuple[int, int]


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
    """Symbol → meaning, from the last rule."""
    return dict(re.findall(r"(\S) is (?:an? |the )?([a-z ]+)[,.]", system.splitlines()[-1]))


def read_grid(observation: str) -> list[list[str]]:
    return [line.split(" ") for line in observation.partition("Grid:\n")[2].splitlines()]


def read_coordinates(observation: str) -> dict[str, list[Cell]]:
    """Label → cells."""
    lines = [line.split(": ", 1) for line in observation.partition("Grid:")[0].splitlines() if ":" in line]
    return {label: [(int(r), int(c)) for r, c in re.findall(r"\((\d+), (\d+)\)", cells)] for label, cells in lines}


def read_board(system: str, observation: str) -> dict[str, set[Cell]]:
    """Meaning → cells: from the coordinates if there are any, else from the grid."""
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


@dataclass(frozen=True)
class Reader:
    """Walks to the goal or to the nearest apple, by the text of its prompts."""

    size: int

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=f"<action>{self.choose(prompt.system, prompt.observation)}</action>") for prompt in prompts]

    def choose(self, system: str, observation: str) -> str:
        """The first action of a shortest path; ties go by direction, so that names do not matter."""
        board, moves = read_board(system, observation), read_moves(system)
        [start] = board.get("you") or board["your head"]
        blocked = {cell for name, cells in board.items() if name in ("hole", "your body") or "opponent" in name for cell in cells}
        ordered = sorted(moves, key=lambda name: moves[name])
        queue, seen = deque([(start, "")]), {start, *blocked}
        while queue:
            (r, c), first = queue.popleft()
            if (r, c) in (board.get("goal") or board["apple"]):
                return first
            for name in ordered:
                cell = (r + moves[name][0], c + moves[name][1])
                if 0 <= cell[0] < self.size and 0 <= cell[1] < self.size and cell not in seen:
                    seen.add(cell)
                    queue.append((cell, first or name))
        return ordered[0]
