"""Games whose rules are gymnasium's table `P`, in words: Cliff Walking and Taxi. They are solved exactly.

A subclass of `TableGame` adds another environment: its words and its drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, Cell, View, cells_text, grid_rows, observation
from msgrpo_hub.games.game import Solvable, Transition, check_turn

_environment = cache(lambda path: resolve_name(path)())
"""`module:class` → an environment of gymnasium. Only its table is used."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A position of an environment, the number of turns played, and whether the episode has ended with success."""

    position: int
    turn: int = 0
    ended: bool = False


@dataclass(frozen=True)
class TableGame(Solvable):
    """A game with the table of an environment. A position is the environment's number of a state."""

    id: str
    horizon: int
    view: View = "full"

    environment: ClassVar[str]
    """`module:class` of an environment with `P` and `initial_state_distrib`, as in gymnasium; `actions` names those of `P`."""
    facts: ClassVar[tuple[str, ...]]
    """The rules, without the horizon and the legend of the grid."""
    idle_reward: ClassVar[float] = 0.0
    """The reward of a turn without an action; the position stays."""
    best_return: ClassVar[float | None] = None
    """The largest return of an episode; None takes the bound from the rewards."""
    shown: ClassVar[Callable[[Any, int], tuple[list[str], list[str]]]]
    """`shown(self, position)`: a position in words, one fact a line, and its grid."""

    def __post_init__(self) -> None:
        low, high = self.reward_range
        best = max(high, high * self.horizon) if self.best_return is None else self.best_return
        legend = ", ".join(f"{symbol} is {meaning}" for symbol, meaning in self.symbols.items())
        rules = *self.facts, f"The game ends after {self.horizon} turns.", f"In the grid {legend}."
        vars(self).update(rules=rules, return_range=(min(low, low * self.horizon), best))

    def initial_state(self, rng: np.random.Generator) -> TableState:
        chances = _environment(self.environment).initial_state_distrib
        return TableState(int(rng.choice(len(chances), p=chances)))

    def board(self, state: TableState) -> str:
        return "\n".join(self.shown(state.position)[0])

    def outcomes(self, state: TableState, action: str | None) -> list[tuple[float, Transition[TableState]]]:
        """P(s', r | s, a) as (probability, transition) pairs, from the table."""
        check_turn(self, action, state.ended or state.turn >= self.horizon)
        table: list[tuple[float, int, float, bool]] = [(1.0, state.position, self.idle_reward, False)]
        if action is not None:
            table = _environment(self.environment).P[state.position][self.actions.index(action)]
        outcomes = []
        for chance, position, reward, ended in table:
            after = TableState(int(position), state.turn + 1, bool(ended))
            last = after.turn >= self.horizon
            outcomes.append((chance, Transition(after, float(reward), after.ended, last and not after.ended)))
        return outcomes

    def step(self, state: TableState, action: str | None, rng: np.random.Generator) -> Transition[TableState]:
        outcomes = self.outcomes(state, action)
        chances = [chance for chance, _ in outcomes]
        return outcomes[int(rng.choice(len(outcomes), p=chances)) if len(outcomes) > 1 else 0][1]

    def observe(self, state: TableState) -> str:
        return observation(*self.shown(state.position), self.view)

    def grid(self, state: TableState) -> list[str]:
        return self.shown(state.position)[1]

    def legal_actions(self, state: TableState) -> tuple[str, ...]:
        """The actions that can change the position."""
        ways = _environment(self.environment).P[state.position]
        return tuple(name for way, name in enumerate(self.actions) if any(after != state.position for _, after, *_ in ways[way]))

    def safe_actions(self, state: TableState) -> tuple[str, ...]:
        """The legal actions that cannot give the lowest reward."""
        ways, legal = _environment(self.environment).P[state.position], self.legal_actions(state)
        worst = {name: min(reward for _, _, reward, _ in ways[way]) for way, name in enumerate(self.actions)}
        return tuple(name for name in legal if worst[name] > self.reward_range[0])

    def succeeded(self, state: TableState) -> bool:
        return state.ended


@dataclass(frozen=True)
class CliffWalking(TableGame):
    """Walk along the cliff: a fall costs 100 and leads back to the start (Sutton & Barto, 2nd edition, example 6.6)."""

    environment = "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv"
    rows = 4
    columns = 12
    actions = ("Up", "Right", "Down", "Left")
    instructions = "Walk to the goal in as few turns as you can. Do not fall off the cliff."
    symbols = MappingProxyType({".": "free", "@": "you", "C": "cliff", "G": "goal"})
    reward_range = (-100.0, -1.0)
    idle_reward = -1.0
    facts = (
        *CELL_RULES,
        "A move off the board leaves you where you are.",
        "Every turn gives -1. The cliff gives -100 and takes you back to the start. The goal ends the game.",
    )
    goal: ClassVar[Cell] = (3, 11)
    cliff: ClassVar[tuple[Cell, ...]] = tuple((3, column) for column in range(1, 11))

    def shown(self, position: int) -> tuple[list[str], list[str]]:
        you = divmod(position, self.columns)
        lines = [f"You: {cells_text([you])}", f"Goal: {cells_text([self.goal])}", f"Cliff: {cells_text(self.cliff)}"]
        return lines, grid_rows(self.rows, self.columns, {**dict.fromkeys(self.cliff, "C"), self.goal: "G", you: "@"})


@dataclass(frozen=True)
class Taxi(TableGame):
    """Take a passenger from one stand to another (Dietterich, 2000). The grid has a column between any two columns of cells."""

    environment = "gymnasium.envs.toy_text.taxi:TaxiEnv"
    rows = 5
    columns = 9
    actions = ("South", "North", "East", "West", "Pickup", "Dropoff")
    instructions = "You drive a taxi. Drive to the passenger, pick up, drive to the destination, and drop off there."
    symbols = MappingProxyType(
        {
            ".": "road",
            "@": "your taxi",
            "P": "the waiting passenger",
            "D": "the destination",
            **{name: f"the stand {name}" for name in "RGYB"},
            ":": "a way between two cells",
            "|": "a wall between two cells",
        }
    )
    reward_range = (-10.0, 20.0)
    idle_reward = -1.0
    facts = (
        "A cell is (row, column) from (0, 0) at the top left to (4, 4); between two cells of a row is a way or a wall.",
        "South and North change the row by one, East and West change the column by one.",
        "A move into a wall or off the board leaves you where you are.",
        "Pickup takes in a passenger who waits where you are. Dropoff lets the passenger out at a stand.",
        "Every turn gives -1. Pickup without a passenger there, and Dropoff away from the stands or of nobody, give -10 instead.",
        "Dropoff at the destination gives 20 instead and ends the game.",
    )
    stands: ClassVar[Mapping[str, Cell]] = {"R": (0, 0), "G": (0, 4), "Y": (4, 0), "B": (4, 3)}
    walls: ClassVar[Mapping[int, tuple[int, ...]]] = {0: (1,), 1: (1,), 3: (0, 2), 4: (0, 2)}
    """Row → the columns with a wall on their right."""
    best_return = 19.0  # a delivery takes at least two turns: -1, then 20

    def shown(self, position: int) -> tuple[list[str], list[str]]:
        rest, destination = divmod(position, 4)
        cell, passenger = divmod(rest, 5)  # gymnasium's encoding: the cell, the passenger's stand or the taxi, the destination
        taxi, at = divmod(cell, 5), [*self.stands, ""][passenger]
        name, goal = list(self.stands.items())[destination]
        stands = " ".join(f"{name} {cells_text([cell])}" for name, cell in self.stands.items())
        walls = [(row, column) for row, columns in self.walls.items() for column in columns]
        lines = [
            f"Taxi: {cells_text([taxi])}",
            f"Passenger: {f'at {at} {cells_text([self.stands[at]])}' if at else 'in the taxi'}",
            f"Destination: {name} {cells_text([goal])}",
            f"Stands: {stands}",
            f"Walls on the right of: {cells_text(walls)}",
        ]
        symbols = {cell: name for name, cell in self.stands.items()} | {goal: "D"}
        symbols |= ({self.stands[at]: "P"} if at else {}) | {taxi: "@"}
        rows = grid_rows(5, 5, symbols)
        edges = [["|" if (r, c) in walls else ":" for c in range(5)] for r in range(5)]
        return lines, ["".join(map("".join, zip(rows[r], edges[r], strict=True)))[: self.columns] for r in range(5)]
