"""Frozen Lake: gymnasium's rules and maps, played through text.

The episode's initial-state stream gives the seed of the map, and the map is gymnasium's for that seed (`lake_maps.py`, which has
other ways to draw a lake too). A slip goes to one of the two sides of the intended direction, each with probability 1/3 unless a
`success_rate` says otherwise. With "no action" (⊥), the player stays on its cell and does not slip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, DIRECTIONS, Cell, canonical, cells_text, grid_rows, inside, neighbour
from msgrpo_hub.games.game import Transition, View, check_action
from msgrpo_hub.games.lake_maps import GYMNASIUM, Maps
from msgrpo_hub.games.scene import Posture, Scene


@dataclass(frozen=True, slots=True)
class LakeState:
    """The lake, the player's cell, and the number of turns played."""

    size: int
    holes: tuple[Cell, ...]
    player: Cell = (0, 0)
    turn: int = 0
    given_goal: Cell | None = None
    """The cell of the goal; None is the bottom right."""

    @property
    def goal(self) -> Cell:
        return self.given_goal or (self.size - 1, self.size - 1)

    @property
    def terminal(self) -> bool:
        return self.player == self.goal or self.player in self.holes


@dataclass(frozen=True)
class FrozenLake:
    """Reach the goal: +1 there, 0 elsewhere; a hole ends the episode. Or avoid it, where it is a trap."""

    id: str
    size: int = 4
    frozen_probability: float = 0.8
    slippery: bool = False
    horizon: int = 8
    exactly: bool = False
    """Whether the goal gives its reward only on the last turn; the observation then shows the turns left."""
    view: View = "full"
    maps: Maps = GYMNASIUM
    """How lakes are drawn: holes, start and goal."""
    success_rate: float | None = None
    """The chance that a move on slippery ice goes where it is meant to; the two sides share the rest. None is 1/3."""
    goal_reward: float = 1.0
    """What the goal gives. Below 0 it is a trap, and success is to end on the ice."""
    task: str = "Reach the goal and do not fall into a hole."
    """What the instructions ask for."""

    actions = tuple(DIRECTIONS)
    symbols: ClassVar[Mapping[str, str]] = {".": "ice", "@": "you", "O": "hole", "G": "goal"}
    pictures = symbols
    directions = DIRECTIONS

    @property
    def reward_range(self) -> tuple[float, float]:
        return min(0.0, self.goal_reward), max(0.0, self.goal_reward)

    return_range = reward_range

    @property
    def instructions(self) -> str:
        return f"You walk on a frozen lake. {self.task}"

    @property
    def rows(self) -> int:
        return self.size

    @property
    def columns(self) -> int:
        return self.size

    @cached_property
    def rules(self) -> tuple[str, ...]:
        meant, side = ("1/3", "1/3") if self.success_rate is None else (f"{self.success_rate:g}", f"{self._side:g}")
        slip = f"The ice is slippery: a move goes where you want with chance {meant} and to each side with chance {side}."
        when = f" if you reach it in exactly {self.horizon} turns, else 0," if self.exactly else ""
        return (
            *CELL_RULES,
            "A move off the board leaves you where you are.",
            *([slip] if self.slippery else []),
            f"The goal gives {self.goal_reward:g}{when} and ends the game. A hole gives 0 and ends the game.",
            f"The game ends after {self.horizon} turns.",
            "In the grid @ is you, . is ice, O is a hole, G is the goal.",
        )

    def initial_state(self, rng: np.random.Generator) -> LakeState:
        return self._state(*self.maps.draw(self.size, self.frozen_probability, rng))

    def _state(self, holes: tuple[Cell, ...], start: Cell, goal: Cell) -> LakeState:
        return LakeState(self.size, holes, start, given_goal=None if goal == (self.size - 1, self.size - 1) else goal)

    @property
    def _side(self) -> float:
        """The chance of each side on slippery ice with a `success_rate`."""
        return (1 - (self.success_rate or 0.0)) / 2

    def board(self, state: LakeState) -> str:
        """Start, goal and holes, the same for mirrored and turned lakes."""
        return canonical(self.grid(state))

    @cached_property
    def common_boards(self) -> frozenset[str]:
        """The lake without holes: 24 % of the lakes of Slippery."""
        return frozenset(self.board(self._state(*lake)) for lake in self.maps.common(self.size))

    def outcomes(self, state: LakeState, action: str | None) -> list[tuple[float, Transition[LakeState]]]:
        """P(s', r | s, a) as (probability, transition) pairs: one pair without slipping, three on slippery ice."""
        check_action(self, action)
        if state.terminal or state.turn >= self.horizon:
            raise ValueError(f"{self.id}: the episode has ended; start another with initial_state")
        cells, arrivals = self._entered[state.player, action], _arrivals(self, state.holes, state.turn, state.given_goal)
        if self.success_rate is None or len(cells) == 1:
            return [(1 / len(cells), arrivals[cell]) for cell in cells]
        chances = (self._side, self.success_rate, self._side)
        return [(chance, arrivals[cell]) for chance, cell in zip(chances, cells, strict=True)]

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        outcomes = self.outcomes(state, action)
        if len(outcomes) == 1:
            return outcomes[0][1]
        chances = None if self.success_rate is None else [chance for chance, _ in outcomes]
        return outcomes[int(rng.integers(3) if chances is None else rng.choice(3, p=chances))][1]

    @cached_property
    def _entered(self) -> dict[tuple[Cell, str | None], tuple[Cell, ...]]:
        """(cell, action) → the cells entered: one side, the cell meant, the other side; a move off the board stays."""
        cells = [(row, column) for row in range(self.rows) for column in range(self.columns)]
        entered: dict[tuple[Cell, str | None], tuple[Cell, ...]] = {(cell, None): (cell,) for cell in cells}
        for cell in cells:
            ends = [neighbour(cell, action) for action in self.actions]
            ends = [end if inside(end, self.rows, self.columns) else cell for end in ends]
            for a, action in enumerate(self.actions):
                slips = (-1, 0, 1) if self.slippery else (0,)
                entered[cell, action] = tuple(ends[(a + slip) % 4] for slip in slips)
        return entered

    def goal_counts(self, turns_left: int) -> bool:
        """Whether reaching the goal gives its reward; `turns_left` counts from before the move."""
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
        return grid_rows(self.rows, self.columns, {state.goal: "G", **dict.fromkeys(state.holes, "O"), state.player: "@"})

    def scene(self, state: LakeState) -> Scene:
        posture: Posture = "goal" if state.player == state.goal else "hole" if state.terminal else ""
        under = {"goal": "G", "hole": "O"}.get(posture, ".")
        goal, blocked = frozenset([state.goal]), frozenset(self._deadly(state))
        return Scene(player=state.player, under=under, posture=posture, wanted=goal - blocked, blocked=blocked)

    def _deadly(self, state: LakeState) -> tuple[Cell, ...]:
        """The cells never to enter."""
        return (*state.holes, state.goal) if self.goal_reward < 0 else state.holes

    def legal_actions(self, state: LakeState) -> tuple[str, ...]:
        return tuple(a for a in self.actions if inside(neighbour(state.player, a), self.rows, self.columns))

    def safe_actions(self, state: LakeState) -> tuple[str, ...]:
        return tuple(a for a in self.legal_actions(state) if neighbour(state.player, a) not in self._deadly(state))

    def succeeded(self, state: LakeState) -> bool:
        if self.goal_reward < 0:
            return not state.terminal
        return state.player == state.goal and self.goal_counts(self.horizon - state.turn + 1)


class _Arrivals(dict[Cell, Transition[LakeState]]):
    """Cell → the transition that enters it on one turn of one lake, made on first use."""

    def __init__(self, game: FrozenLake, holes: tuple[Cell, ...], turn: int, goal: Cell | None) -> None:
        super().__init__()
        self.game, self.holes, self.turn, self.goal = game, holes, turn, goal

    def __missing__(self, cell: Cell) -> Transition[LakeState]:
        after = LakeState(self.game.size, self.holes, cell, self.turn + 1, self.goal)
        reached = cell == after.goal and self.game.goal_counts(self.game.horizon - self.turn)
        reward = self.game.goal_reward if reached else 0.0
        truncated = not after.terminal and after.turn >= self.game.horizon
        self[cell] = Transition(after, reward, after.terminal, truncated)
        return self[cell]


_arrivals = lru_cache(maxsize=256)(_Arrivals)
"""Tables of the most recent turns: solving a lake uses each transition a dozen times."""
