"""A custom game with an exact optimum: Cliff Walking (Sutton & Barto, 2nd edition, example 6.6), on 4 × 12 cells.

The rules are gymnasium's: every turn gives −1, stepping into the cliff gives −100 and leads back to the start, and the goal
ends the game. Its `outcomes` give it optimal play, regret per step and luck-adjusted scores; its `scene` gives it arrows in
replays and the player `greedy`. To use it from the command line, name it in a package as an entry point:
`CliffWalking-v1 = "cliff_walking:CliffWalking"` in the group `msgrpo_hub.games`. It has a single start, which training,
validation and test share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msgrpo_hub.games import Scene, Solvable, Transition

MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
START, GOAL = (3, 0), (3, 11)
CLIFF = frozenset((3, column) for column in range(1, 11))


@dataclass(frozen=True)
class State:
    """Where the player stands, and how many turns have passed."""

    player: tuple[int, int] = START
    turn: int = 0


@dataclass(frozen=True)
class CliffWalking(Solvable):
    """Walk from the start to the goal, along the cliff."""

    id: str = "CliffWalking-v1"
    rows: int = 4
    columns: int = 12
    horizon: int = 20
    actions = tuple(MOVES)
    directions = MOVES
    reward_range = (-100.0, -1.0)
    instructions = "Walk to the goal in as few turns as you can. Do not fall off the cliff."
    symbols = {".": "free", "@": "you", "C": "cliff", "G": "goal"}
    pictures = symbols

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return (
            "A cell is (row, column); (0, 0) is the top left.",
            "Every turn gives -1. A move off the board leaves you where you are.",
            "The cliff gives -100 and takes you back to the start. The goal ends the game.",
            f"The game ends after {self.horizon} turns.",
            "In the grid . is free, @ is you, C is cliff, G is goal.",
        )

    def initial_state(self, rng: np.random.Generator) -> State:
        return State()

    def outcomes(self, state: State, action: str | None) -> list[tuple[float, Transition[State]]]:
        if action not in (*MOVES, None):
            raise ValueError(f"{self.id} has no action {action!r}: expected one of {', '.join(MOVES)}, or None")
        if state.player == GOAL or state.turn >= self.horizon:
            raise ValueError(f"{self.id}: the episode has ended")
        cell = self._ahead(state, action) if action else state.player
        fell = cell in CLIFF
        after = State(START if fell else cell, state.turn + 1)
        found = cell == GOAL
        return [(1.0, Transition(after, -100.0 if fell else -1.0, found, not found and after.turn == self.horizon))]

    def step(self, state: State, action: str | None, rng: np.random.Generator) -> Transition[State]:
        return self.outcomes(state, action)[0][1]

    def _ahead(self, state: State, action: str) -> tuple[int, int]:
        row, column = (at + by for at, by in zip(state.player, MOVES[action], strict=True))
        return min(max(row, 0), self.rows - 1), min(max(column, 0), self.columns - 1)

    def observe(self, state: State) -> str:
        return f"You: {state.player}\nGoal: {GOAL}\nCliff: (3, 1) to (3, 10)"

    def grid(self, state: State) -> list[str]:
        symbols = {**dict.fromkeys(CLIFF, "C"), GOAL: "G", state.player: "@"}
        return ["".join(symbols.get((row, column), ".") for column in range(self.columns)) for row in range(self.rows)]

    def scene(self, state: State) -> Scene:
        at_goal = state.player == GOAL
        under, posture = ("G", "goal") if at_goal else (".", "")
        return Scene(player=state.player, under=under, posture=posture, wanted=frozenset([GOAL]), blocked=CLIFF)

    def legal_actions(self, state: State) -> tuple[str, ...]:
        return tuple(action for action in self.actions if self._ahead(state, action) != state.player)

    def safe_actions(self, state: State) -> tuple[str, ...]:
        return tuple(action for action in self.legal_actions(state) if self._ahead(state, action) not in CLIFF)

    def succeeded(self, state: State) -> bool:
        return state.player == GOAL
