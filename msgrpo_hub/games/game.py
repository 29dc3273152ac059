"""The protocol of games: pure functions of a frozen, hashable state, with all randomness from an explicit generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeGuard, TypeVar

import numpy as np

State = TypeVar("State")
View = Literal["full", "coordinates", "grid"]
"""What the text observation contains: the list of coordinates, the grid, or both."""


@dataclass(frozen=True, slots=True)
class Transition(Generic[State]):
    """The result of one step: `(s', r, terminated, truncated)`, named as in gymnasium."""

    state: State
    reward: float
    terminated: bool
    truncated: bool


class Game(Protocol):
    """A text game (a TSMG of the paper without its text policy): S, A, P, R and the text observation O.

    A game has only parameters; every method is a function of its arguments. `action=None` is the paper's ⊥, "no action":
    the player does nothing, and the rest of the game continues. A game may also have `board(state)`, `common_boards` (see
    `games.splits`) and `return_range`. One whose rules run elsewhere has `recorded_states` (see `is_remote`), and may have
    `sessions()`: a context for the time of a rollout, after which nothing is open.
    """

    @property
    def id(self) -> str:
        """The versioned name, such as `Snake-Standard-v1`; a changed rule is a new version."""

    @property
    def rows(self) -> int:
        """The number of rows of the board."""

    @property
    def columns(self) -> int:
        """The number of columns of the board."""

    @property
    def horizon(self) -> int:
        """The number of turns after which an episode is truncated."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The available actions, in the order of gymnasium's `Discrete` space."""

    @property
    def instructions(self) -> str:
        """The task in a sentence or two, for the prompt."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules, one sentence or two each, for the prompt."""

    @property
    def symbols(self) -> Mapping[str, str]:
        """Grid symbol → its meaning."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and largest reward of one step."""

    def initial_state(self, rng: np.random.Generator) -> Any:
        """Samples s0."""

    def step(self, state: Any, action: str | None, rng: np.random.Generator) -> Transition[Any]:
        """Plays one turn. Raises `ValueError` for an action that is not available or an episode that has ended."""

    def observe(self, state: Any) -> str:
        """The text observation: everything that a language agent sees of the state."""

    def grid(self, state: Any) -> list[str]:
        """The board as `rows` strings of `columns` one-character symbols."""

    def legal_actions(self, state: Any) -> tuple[str, ...]:
        """The actions that move the player neither into a wall nor into its own body. May be empty."""

    def safe_actions(self, state: Any) -> tuple[str, ...]:
        """The legal actions that do not enter a danger visible on the board. May be empty."""

    def succeeded(self, state: Any) -> bool:
        """Whether an episode that ends in this state is a success."""


class Solvable(Game, Protocol):
    """A game with known probabilities and few states, whose exact values can be computed (see `games.solving`).

    The game and its states must be hashable. A state must include the turn, since values depend on the turns left.
    """

    def __hash__(self) -> int:
        """Solved values are cached by game."""

    def outcomes(self, state: Any, action: str | None) -> Sequence[tuple[float, Transition[Any]]]:
        """P(s', r | s, a) as (probability, transition) pairs; `step` samples one of them. Raises `ValueError` as `step` does."""


def is_solvable(game: Game) -> TypeGuard[Solvable]:
    """Whether a game has `outcomes`, so that its exact values can be computed."""
    return callable(getattr(game, "outcomes", None))


def is_remote(game: Game) -> bool:
    """Whether the rules of a game run elsewhere, so that a stored episode cannot be played again here.

    Such a game has `recorded_states(episode)`: its states as far as the record tells them, one more than there are steps. Its
    boards are not known before they are played, so its splits differ by their seeds alone.
    """
    return callable(getattr(game, "recorded_states", None))


def check_action(game: Game, action: str | None) -> None:
    """Raises `ValueError` for an action that the game does not have."""
    if action is not None and action not in game.actions:
        raise ValueError(f"{game.id} has no action {action!r}: expected one of {', '.join(game.actions)}, or None")


def return_range(game: Game) -> tuple[float, float]:
    """The smallest and largest return of an episode: the game's own `return_range`, else the bounds from its rewards.

    A game should have its own: the bounds from its rewards are far too wide where a reward comes once, as a death does.

    >>> from msgrpo_hub.games import make_game
    >>> return_range(make_game("FrozenLake-NotSlippery-v1")), return_range(make_game("Snake-Solo-v1"))
    ((0.0, 1.0), (-1.0, 20.0))
    """
    low, high = game.reward_range
    own: tuple[float, float] = getattr(game, "return_range", (min(low * game.horizon, 0.0), max(high * game.horizon, 0.0)))
    return own


def render_text(game: Game, state: Any) -> str:
    """The board as text in a frame; of a game whose rules run elsewhere, its observation."""
    if is_remote(game):
        return game.observe(state)
    line = "─" * (2 * game.columns + 1)
    rows = [f"│ {' '.join(row)} │" for row in game.grid(state)]
    return "\n".join([f"┌{line}┐", *rows, f"└{line}┘"])
