"""The protocol of games: pure functions of a frozen, hashable state, with all randomness from an explicit generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games.board import Cell

State = TypeVar("State")
Posture = Literal["", "goal", "hole"]
"""How a player without a body is drawn: standing, beside the flag of the goal, or in a hole."""


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
    the player does nothing, and the rest of the game continues. Optional members: `board(state)` and `common_boards` (see
    `games.seeds`), `return_range`, and for rules that run on a server `recorded_states` (see `is_remote`) and `sessions()`,
    the context of a rollout.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A moving body that covers several cells."""

    cells: tuple[Cell, ...]
    """From head to tail."""
    alive: bool = True
    """Whether it is alive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """The parts of a state that a grid does not show, for drawing and path finding. Cells are on the displayed board."""

    player: Cell
    """The cell of the player, or of its head."""
    under: str = "."
    """The symbol under a player without a body, which the grid hides."""
    posture: Posture = ""
    """The posture of a player without a body."""
    bodies: tuple[Body, ...] = ()
    """The bodies on the board, the player's first; empty for a player without one."""
    wanted: frozenset[Cell] = frozenset()
    """The cells worth going to."""
    blocked: frozenset[Cell] = frozenset()
    """The cells never to enter."""
    contested: frozenset[Cell] = frozenset()
    """The cells that an opponent may enter this turn."""


class HasScene(Game, Protocol):
    """A game that describes its states as scenes. Other games are drawn from their grids and symbols."""

    @property
    def directions(self) -> Mapping[str, Cell]:
        """Action → its move on the board, as (rows, columns)."""

    @property
    def pictures(self) -> Mapping[str, str]:
        """Grid symbol → the name of its drawing (see `rendering/board_art.svg`)."""

    def scene(self, state: Any) -> Scene:
        """The scene of a state."""


def has_scene(game: Game) -> TypeGuard[HasScene]:
    """Whether a game describes its states as scenes."""
    return callable(getattr(game, "scene", None))


def is_solvable(game: Game) -> TypeGuard[Solvable]:
    """Whether a game has `outcomes`, so that its exact values can be computed."""
    return callable(getattr(game, "outcomes", None))


def is_remote(game: Game) -> bool:
    """Whether the rules of a game run on a server, so that a stored episode cannot be replayed.

    Such a game has `recorded_states(episode)`: its states as far as the record shows them, one more than there are steps. Its
    boards are unknown before they are played, so its splits differ only by their seeds.
    """
    return callable(getattr(game, "recorded_states", None))


def check_turn(game: Game, action: str | None, ended: bool) -> None:
    """Raises `ValueError` for an action that the game does not have, or if the episode has ended."""
    if action is not None and action not in game.actions:
        raise ValueError(f"{game.id} has no action {action!r}: expected one of {', '.join(game.actions)}, or None")
    if ended:
        raise ValueError(f"{game.id}: the episode has ended; start another with initial_state")


def return_range(game: Game) -> tuple[float, float]:
    """The smallest and largest return of an episode: the game's own `return_range`, else the bounds from its rewards.

    The bounds from the rewards are far too wide for a reward that comes once, such as a death.

    >>> from msgrpo_hub.games import make_game
    >>> return_range(make_game("FrozenLake-NotSlippery-v1")), return_range(make_game("Snake-Solo-v1"))
    ((0.0, 1.0), (-1.0, 20.0))
    """
    low, high = game.reward_range
    own: tuple[float, float] = getattr(game, "return_range", (min(low * game.horizon, 0.0), max(high * game.horizon, 0.0)))
    return own


def render_text(game: Game, state: Any) -> str:
    """The board as text in a frame; the observation of a game whose rules run on a server."""
    if is_remote(game):
        return game.observe(state)
    line = "─" * (2 * game.columns + 1)
    rows = [f"│ {' '.join(row)} │" for row in game.grid(state)]
    return "\n".join([f"┌{line}┐", *rows, f"└{line}┘"])


def planes(game: Game, state: Any) -> npt.NDArray[np.float32]:
    """The grid as one-hot planes (symbols, rows, columns): plane k is 1 where the grid has the k-th of `game.symbols`."""
    rows = np.array([list(row) for row in game.grid(state)])
    return np.stack([rows == symbol for symbol in game.symbols]).astype(np.float32)
