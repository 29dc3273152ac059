"""The words of gymnasium's CliffWalking and Taxi. Their tables are gymnasium's own, `P`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, Cell, cells_text, grid_rows


@cache
def _environment(module: str, name: str) -> Any:
    """One environment of gymnasium, whose table is read and which is never played."""
    return getattr(import_module(f"gymnasium.envs.toy_text.{module}"), name)()


class _Tabular:
    """An environment with gymnasium's table; a position is gymnasium's number of a state."""

    origin: ClassVar[tuple[str, str]]
    """Module and class in gymnasium."""
    actions: ClassVar[tuple[str, ...]]
    """Names of gymnasium's actions, in its order."""

    def start(self, rng: np.random.Generator) -> int:
        chances = _environment(*self.origin).initial_state_distrib
        return int(rng.choice(len(chances), p=chances))

    def ways(self, position: int, action: str | None, turn: int) -> Sequence[tuple[float, int, float, bool]]:  # noqa: ARG002
        if action is None:
            return [(1.0, position, -1.0, False)]  # a turn in which nothing happens
        ways = _environment(*self.origin).P[position][self.actions.index(action)]
        return [(chance, int(after), reward, ended) for chance, after, reward, ended in ways]


@dataclass(frozen=True)
class CliffWalking(_Tabular):
    """Walk along the cliff: a fall costs 100 and the way from the start (Sutton & Barto, 2nd edition, example 6.6)."""

    origin = ("cliffwalking", "CliffWalkingEnv")
    rows = 4
    columns = 12
    actions = ("Up", "Right", "Down", "Left")
    instructions = "Walk to the goal in as few turns as you can. Do not fall off the cliff."
    symbols: ClassVar[Mapping[str, str]] = {".": "free", "@": "you", "C": "cliff", "G": "goal"}
    reward_range = (-100.0, -1.0)
    danger = -100.0
    rules = (
        *CELL_RULES,
        "A move off the board leaves you where you are.",
        "Every turn gives -1. The cliff gives -100 and takes you back to the start. The goal ends the game.",
    )
    goal: ClassVar[Cell] = (3, 11)
    cliff: ClassVar[tuple[Cell, ...]] = tuple((3, column) for column in range(1, 11))

    def return_range(self, horizon: int) -> tuple[float, float]:
        return -100.0 * horizon, -1.0

    def ended(self, position: int) -> bool:
        return divmod(position, self.columns) == self.goal

    won = ended

    def lines(self, position: int) -> list[str]:
        you = divmod(position, self.columns)
        return [f"You: {cells_text([you])}", f"Goal: {cells_text([self.goal])}", f"Cliff: {cells_text(self.cliff)}"]

    def grid(self, position: int) -> list[str]:
        symbols = {**dict.fromkeys(self.cliff, "C"), self.goal: "G", divmod(position, self.columns): "@"}
        return grid_rows(self.rows, self.columns, symbols)


@dataclass(frozen=True)
class Taxi(_Tabular):
    """Take a passenger from one stand to another (Dietterich, 2000). The board has a column between any two columns of cells."""

    origin = ("taxi", "TaxiEnv")
    rows = 5
    columns = 9
    actions = ("South", "North", "East", "West", "Pickup", "Dropoff")
    instructions = "You drive a taxi. Drive to the passenger, pick up, drive to the destination, and drop off there."
    symbols: ClassVar[Mapping[str, str]] = {
        ".": "road",
        "@": "your taxi",
        "P": "the waiting passenger",
        "D": "the destination",
        "R": "the stand R",
        "G": "the stand G",
        "Y": "the stand Y",
        "B": "the stand B",
        ":": "a way between two cells",
        "|": "a wall between two cells",
    }
    reward_range = (-10.0, 20.0)
    danger = -10.0
    stands: ClassVar[Mapping[str, Cell]] = {"R": (0, 0), "G": (0, 4), "Y": (4, 0), "B": (4, 3)}
    walls: ClassVar[Mapping[int, tuple[int, ...]]] = {0: (1,), 1: (1,), 3: (0, 2), 4: (0, 2)}
    """Row → the columns with a wall on their right."""
    rules = (
        "A cell is (row, column) from (0, 0) at the top left to (4, 4); between two cells of a row is a way or a wall.",
        "South and North change the row by one, East and West change the column by one.",
        "A move into a wall or off the board leaves you where you are.",
        "Pickup takes in a passenger who waits where you are. Dropoff lets the passenger out at a stand.",
        "Every turn gives -1. Pickup without a passenger there, and Dropoff away from the stands or of nobody, give -10 instead.",
        "Dropoff at the destination gives 20 instead and ends the game.",
    )

    def _decoded(self, position: int) -> tuple[Cell, str, str]:
        """The cell of the taxi, the stand where the passenger is ("" in the taxi), and the destination."""
        position, destination = divmod(position, 4)
        taxi, passenger = divmod(position, 5)
        stands = [*self.stands, ""]
        return divmod(taxi, 5), stands[passenger], stands[destination]

    def return_range(self, horizon: int) -> tuple[float, float]:
        return -10.0 * horizon, 19.0  # of at least two turns, the last gives 20

    def ended(self, position: int) -> bool:
        _, passenger, destination = self._decoded(position)
        return passenger == destination

    won = ended

    def lines(self, position: int) -> list[str]:
        taxi, passenger, destination = self._decoded(position)
        at = f"at {passenger} {cells_text([self.stands[passenger]])}" if passenger else "in the taxi"
        stands = " ".join(f"{name} {cells_text([cell])}" for name, cell in self.stands.items())
        walls = [f"({row}, {column})" for row, columns in self.walls.items() for column in columns]
        return [
            f"Taxi: {cells_text([taxi])}",
            f"Passenger: {at}",
            f"Destination: {destination} {cells_text([self.stands[destination]])}",
            f"Stands: {stands}",
            f"Walls on the right of: {' '.join(walls)}",
        ]

    def grid(self, position: int) -> list[str]:
        taxi, passenger, destination = self._decoded(position)
        symbols = {cell: name for name, cell in self.stands.items()} | {self.stands[destination]: "D"}
        symbols |= ({self.stands[passenger]: "P"} if passenger else {}) | {taxi: "@"}
        rows = grid_rows(5, 5, symbols)
        return ["".join(c + self._edge(r, i) for i, c in enumerate(row))[: self.columns] for r, row in enumerate(rows)]

    def _edge(self, row: int, column: int) -> str:
        return "|" if column in self.walls.get(row, ()) else ":"
