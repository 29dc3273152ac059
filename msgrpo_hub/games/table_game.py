"""Environments of other packages as text games: one adapter for tables, to which each environment brings words of its own.

A table says what an action can lead to from a position, with which chance and reward. So these games are solved exactly, like
all others. `toy_text.py` has environments of gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from msgrpo_hub.games.game import Transition, View, check_action

Way = tuple[float, Any, float, bool]
"""(probability, next position, reward, whether the episode ends), as in gymnasium's `P`."""


class Environment(Protocol):
    """The table of an environment, and the words that tell it. A position is hashable and tells everything but the turn."""

    @property
    def rows(self) -> int:
        """The number of rows of the board."""

    @property
    def columns(self) -> int:
        """The number of columns of the board."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions."""

    @property
    def instructions(self) -> str:
        """The task in a sentence or two."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules, without the horizon and the legend of the grid."""

    @property
    def symbols(self) -> Mapping[str, str]:
        """Grid symbol → its meaning."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and largest reward of one turn."""

    @property
    def danger(self) -> float:
        """A reward as low as this is what a careful player avoids."""

    def start(self, rng: np.random.Generator) -> Any:
        """Samples the position of a new episode."""

    def ways(self, position: Any, action: str | None, turn: int) -> Sequence[Way]:
        """What an action, or none, can lead to on a turn; turns count from 0."""

    def ended(self, position: Any) -> bool:
        """Whether an episode has ended in a position."""

    def won(self, position: Any) -> bool:
        """Whether an episode that ends in a position is a success."""

    def lines(self, position: Any) -> list[str]:
        """A position in words, one fact a line."""

    def grid(self, position: Any) -> list[str]:
        """The board of a position."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A position of an environment, and how many turns have passed."""

    position: Any
    turn: int = 0


@dataclass(frozen=True)
class TableGame:
    """A game whose rules are the table of an environment."""

    id: str
    environment: Environment
    horizon: int
    view: View = "full"

    @property
    def rows(self) -> int:
        return self.environment.rows

    @property
    def columns(self) -> int:
        return self.environment.columns

    @property
    def actions(self) -> tuple[str, ...]:
        return self.environment.actions

    @property
    def instructions(self) -> str:
        return self.environment.instructions

    @property
    def symbols(self) -> Mapping[str, str]:
        return self.environment.symbols

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.environment.reward_range

    @property
    def return_range(self) -> tuple[float, float]:
        """Bounds of the return of an episode: the environment's own `return_range(horizon)`, else those of one reward."""
        own: Callable[[int], tuple[float, float]] | None = getattr(self.environment, "return_range", None)
        return own(self.horizon) if own else self.reward_range

    @property
    def rules(self) -> tuple[str, ...]:
        legend = ", ".join(f"{symbol} is {meaning}" for symbol, meaning in self.symbols.items())
        return *self.environment.rules, f"The game ends after {self.horizon} turns.", f"In the grid {legend}."

    def initial_state(self, rng: np.random.Generator) -> TableState:
        return TableState(self.environment.start(rng))

    def board(self, state: TableState) -> str:
        """The start in words: what belongs to training is not in the test."""
        return "\n".join(self.environment.lines(state.position))

    def outcomes(self, state: TableState, action: str | None) -> list[tuple[float, Transition[TableState]]]:
        """P(s', r | s, a) as (probability, transition) pairs, from the environment's table."""
        check_action(self, action)
        if self.environment.ended(state.position) or state.turn >= self.horizon:
            raise ValueError(f"{self.id}: the episode has ended; start another with initial_state")
        return [(way[0], self._transition(state.turn + 1, *way[1:])) for way in self._ways(state, action)]

    def _ways(self, state: TableState, action: str | None) -> Sequence[Way]:
        return self.environment.ways(state.position, action, state.turn)

    def _transition(self, turn: int, position: Any, reward: float, ended: bool) -> Transition[TableState]:
        return Transition(TableState(position, turn), float(reward), bool(ended), not ended and turn >= self.horizon)

    def step(self, state: TableState, action: str | None, rng: np.random.Generator) -> Transition[TableState]:
        outcomes = self.outcomes(state, action)
        chances = [chance for chance, _ in outcomes]
        return outcomes[int(rng.choice(len(outcomes), p=chances)) if len(outcomes) > 1 else 0][1]

    def observe(self, state: TableState) -> str:
        lines = self.environment.lines(state.position)
        grid = ["Grid:", *(" ".join(row) for row in self.grid(state))]
        return "\n".join((lines if self.view != "grid" else []) + (grid if self.view != "coordinates" else []))

    def grid(self, state: TableState) -> list[str]:
        return self.environment.grid(state.position)

    def legal_actions(self, state: TableState) -> tuple[str, ...]:
        """The actions that can change the position."""
        return tuple(a for a in self.actions if any(after != state.position for _, after, _, _ in self._ways(state, a)))

    def safe_actions(self, state: TableState) -> tuple[str, ...]:
        """The legal actions that cannot lead into danger."""
        ways = {action: self._ways(state, action) for action in self.legal_actions(state)}
        return tuple(a for a in ways if all(reward > self.environment.danger for _, _, reward, _ in ways[a]))

    def succeeded(self, state: TableState) -> bool:
        return self.environment.won(state.position)
