"""Frozen Lake: gymnasium's rules and maps, played through text.

The episode's initial-state stream seeds gymnasium's map generator (`lake_maps.py`, which also has other generators). A slip goes
to one of the two sides of the intended direction, each with probability 1/3 unless `success_rate` says otherwise. With "no
action" (⊥), the player stays on its cell and does not slip.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, Cell, View, cells_text, grid_rows, inside, neighbour, observation
from msgrpo_hub.games.game import Posture, Scene, Solvable, SquareBoard, Transition, check_turn
from msgrpo_hub.games.lake_maps import Maps


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
class FrozenLake(SquareBoard, Solvable):
    """Reach the goal: +1 there, 0 elsewhere; a hole ends the episode. With a negative `goal_reward`, avoid the goal."""

    id: str
    size: int = 4
    frozen_probability: float = 0.8
    slippery: bool = False
    horizon: int = 8
    exactly: bool = False
    """Whether the goal gives its reward only on the last turn; the observation then shows the turns left."""
    view: View = "full"
    maps: Maps = field(default_factory=Maps)
    """How lakes are sampled: holes, start and goal."""
    success_rate: float | None = None
    """The probability that a move on slippery ice goes in the intended direction; the sides share the rest. None is 1/3."""
    goal_reward: float = 1.0
    """The reward at the goal. If negative, success is to end on the ice."""
    task: str = "Reach the goal and do not fall into a hole."
    """The task in the instructions."""

    def __post_init__(self) -> None:
        symbols = {".": "ice", "@": "you", "O": "hole", "G": "goal"}
        rewards = min(0.0, self.goal_reward), max(0.0, self.goal_reward)
        chance, rate = "1/3 and to each side with chance 1/3", self.success_rate
        if rate is not None:
            chance = f"{rate:g} and to each side with chance {(1 - rate) / 2:g}"
        when = f" if you reach it in exactly {self.horizon} turns, else 0," if self.exactly else ""
        rules = (
            *CELL_RULES,
            "A move off the board leaves you where you are.",
            *([f"The ice is slippery: a move goes where you want with chance {chance}."] if self.slippery else []),
            f"The goal gives {self.goal_reward:g}{when} and ends the game. A hole gives 0 and ends the game.",
            f"The game ends after {self.horizon} turns.",
            "In the grid @ is you, . is ice, O is a hole, G is the goal.",
        )
        vars(self).update(rows=self.size, columns=self.size, symbols=symbols, pictures=symbols, rules=rules)
        vars(self).update(instructions=f"You walk on a frozen lake. {self.task}", reward_range=rewards, return_range=rewards)
        lakes = [LakeState(self.size, holes, start, given_goal=goal) for holes, start, goal in self.maps.common(self.size)]
        vars(self).update(common_boards=frozenset(map(self.board, lakes)))

    def initial_state(self, rng: np.random.Generator) -> LakeState:
        holes, start, goal = self.maps.sample(self.size, self.frozen_probability, rng)
        state = LakeState(self.size, holes, start)
        return state if goal == state.goal else replace(state, given_goal=goal)

    def outcomes(self, state: LakeState, action: str | None) -> list[tuple[float, Transition[LakeState]]]:
        """P(s', r | s, a) as (probability, transition) pairs: one pair without slipping, three on slippery ice."""
        check_turn(self, action, state.terminal or state.turn >= self.horizon)
        cells, rate = self._entered[state.player, action], self.success_rate
        chances = [1 / len(cells)] * len(cells) if rate is None or len(cells) == 1 else [(1 - rate) / 2, rate, (1 - rate) / 2]
        known, last = _transitions(self, state.holes, state.turn, state.given_goal), state.turn + 1 >= self.horizon
        for cell in cells:
            if cell not in known:
                after = LakeState(self.size, state.holes, cell, state.turn + 1, state.given_goal)
                reward = self.goal_reward if cell == after.goal and (last or not self.exactly) else 0.0
                known[cell] = Transition(after, reward, after.terminal, last and not after.terminal)
        return [(chance, known[cell]) for chance, cell in zip(chances, cells, strict=True)]

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        outcomes = self.outcomes(state, action)
        if len(outcomes) == 1:
            return outcomes[0][1]
        chances = None if self.success_rate is None else [chance for chance, _ in outcomes]
        return outcomes[int(rng.integers(3) if chances is None else rng.choice(3, p=chances))][1]

    @cached_property
    def _entered(self) -> dict[tuple[Cell, str | None], tuple[Cell, ...]]:
        """(cell, action) → the cells entered: one side, the intended cell, the other side. A move off the board stays."""
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        entered: dict[tuple[Cell, str | None], tuple[Cell, ...]] = {(cell, None): (cell,) for cell in cells}
        for cell in cells:
            ends = [neighbour(cell, action) for action in self.actions]
            ends = [end if inside(end, self.size, self.size) else cell for end in ends]
            for a, action in enumerate(self.actions):
                slips = (-1, 0, 1) if self.slippery else (0,)
                entered[cell, action] = tuple(ends[(a + slip) % 4] for slip in slips)
        return entered

    def observe(self, state: LakeState) -> str:
        facts = [f"You: {cells_text([state.player])}", f"Goal: {cells_text([state.goal])}", f"Holes: {cells_text(state.holes)}"]
        if self.exactly:
            facts.insert(0, f"Turns left: {self.horizon - state.turn}")
        return observation(facts, self.grid(state), self.view)

    def grid(self, state: LakeState) -> list[str]:
        return grid_rows(self.size, self.size, {state.goal: "G", **dict.fromkeys(state.holes, "O"), state.player: "@"})

    def scene(self, state: LakeState) -> Scene:
        posture: Posture = "goal" if state.player == state.goal else "hole" if state.terminal else ""
        under = {"goal": "G", "hole": "O"}.get(posture, ".")
        goal, blocked = frozenset([state.goal]), frozenset(state.holes)
        if self.goal_reward < 0:
            goal, blocked = frozenset(), blocked | goal
        return Scene(player=state.player, under=under, posture=posture, wanted=goal, blocked=blocked)

    def succeeded(self, state: LakeState) -> bool:
        if self.goal_reward < 0:
            return not state.terminal
        return state.player == state.goal and (state.turn == self.horizon or not self.exactly)


@lru_cache(maxsize=256)
def _transitions(*lake_and_turn: object) -> dict[Cell, Transition[LakeState]]:  # noqa: ARG001
    """Cell → the transition that enters it on this turn: solving a lake uses each a dozen times."""
    return {}
