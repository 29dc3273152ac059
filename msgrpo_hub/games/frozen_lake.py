"""Frozen Lake: gymnasium's rules and maps, played through text.

The episode's initial-state stream draws the seed of the map, and the map is gymnasium's for that seed (`lake_maps.py`). A slip
goes to one of the two sides of the intended direction, each with chance 1/3. "No action" (⊥) stays on its cell and does not slip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, DIRECTIONS, Cell, cells_text, grid_rows, inside, neighbour
from msgrpo_hub.games.game import Transition, View, check_action
from msgrpo_hub.games.lake_maps import random_map


@dataclass(frozen=True, slots=True)
class LakeState:
    """Where the player stands on which lake, and how many turns have passed."""

    size: int
    holes: tuple[Cell, ...]
    player: Cell = (0, 0)
    turn: int = 0

    @property
    def goal(self) -> Cell:
        return self.size - 1, self.size - 1

    @property
    def terminal(self) -> bool:
        return self.player == self.goal or self.player in self.holes


@dataclass(frozen=True)
class FrozenLake:
    """Reach the goal at the bottom right: +1 there, 0 elsewhere; a hole ends the episode."""

    id: str
    size: int = 4
    frozen_probability: float = 0.8
    slippery: bool = False
    horizon: int = 8
    exactly: bool = False
    """Whether the goal gives its reward on the last turn only; the observation then shows the turns left."""
    view: View = "full"

    actions = tuple(DIRECTIONS)
    reward_range = (0.0, 1.0)
    symbols: ClassVar[Mapping[str, str]] = {".": "ice", "@": "you", "O": "hole", "G": "goal"}
    instructions = "You walk on a frozen lake. Reach the goal and do not fall into a hole."

    @cached_property
    def rules(self) -> tuple[str, ...]:
        slip = "The ice is slippery: a move goes where you want with chance 1/3 and to each side with chance 1/3."
        when = f" if you reach it in exactly {self.horizon} turns, else 0," if self.exactly else ""
        return (
            *CELL_RULES,
            "A move off the board leaves you where you are.",
            *([slip] if self.slippery else []),
            f"The goal gives 1{when} and ends the game. A hole gives 0 and ends the game.",
            f"The game ends after {self.horizon} turns.",
            "In the grid @ is you, . is ice, O is a hole, G is the goal.",
        )

    def initial_state(self, rng: np.random.Generator) -> LakeState:
        rows = random_map(self.size, self.frozen_probability, seed=int(rng.integers(2**31)))
        return LakeState(self.size, tuple((r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell == "H"))

    def outcomes(self, state: LakeState, action: str | None) -> list[tuple[Fraction, LakeState]]:
        """P(s' | s, a) as (probability, next state) pairs: one pair on firm ice, three on slippery ice."""
        if action is None:
            return [(Fraction(1), LakeState(state.size, state.holes, state.player, state.turn + 1))]
        names = self.actions
        wanted = names.index(action)
        turns = (-1, 0, 1) if self.slippery else (0,)
        moved = []
        for turn in turns:
            cell = neighbour(state.player, names[(wanted + turn) % 4])
            player = cell if inside(cell, self.size) else state.player
            moved.append((Fraction(1, len(turns)), LakeState(state.size, state.holes, player, state.turn + 1)))
        return moved

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        check_action(self, action)
        if state.terminal or state.turn >= self.horizon:
            raise ValueError(f"{self.id}: the episode has ended; start another with initial_state")
        outcomes = self.outcomes(state, action)
        after = outcomes[int(rng.integers(len(outcomes)))][1] if len(outcomes) > 1 else outcomes[0][1]
        reward = float(after.player == after.goal and self.goal_counts(self.horizon - state.turn))
        return Transition(after, reward, after.terminal, not after.terminal and after.turn >= self.horizon)

    def goal_counts(self, turns_left: int) -> bool:
        """Whether reaching the goal gives its reward, with so many turns left before the move."""
        return turns_left == 1 or not self.exactly

    def observe(self, state: LakeState) -> str:
        coordinates = [
            *([f"Turns left: {self.horizon - state.turn}"] if self.exactly else []),
            f"You: {cells_text([state.player])}",
            f"Goal: {cells_text([state.goal])}",
            f"Holes: {cells_text(state.holes)}",
        ]
        grid = ["Grid:", *(" ".join(row) for row in self.grid(state))]
        return "\n".join((coordinates if self.view != "grid" else []) + (grid if self.view != "coordinates" else []))

    def grid(self, state: LakeState) -> list[str]:
        return grid_rows(self.size, {state.goal: "G", **dict.fromkeys(state.holes, "O"), state.player: "@"})

    def legal_actions(self, state: LakeState) -> tuple[str, ...]:
        return tuple(a for a in self.actions if inside(neighbour(state.player, a), self.size))

    def safe_actions(self, state: LakeState) -> tuple[str, ...]:
        return tuple(a for a in self.legal_actions(state) if neighbour(state.player, a) not in state.holes)

    def succeeded(self, state: LakeState) -> bool:
        return state.player == state.goal and self.goal_counts(self.horizon - state.turn + 1)
