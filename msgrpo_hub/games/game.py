"""The interface of games: pure functions of a frozen, hashable state, with all randomness from an explicit generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games.board import DIRECTIONS, Cell, canonical, inside, neighbour

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


class Game:
    """A text game (a TSMG of the paper without its text policy): S, A, P, R and the text observation O.

    A game has only parameters; every method is a function of its arguments. `action=None` is the paper's ⊥, "no action": the
    rest of the game continues. Optional members: `board(state)` and `common_boards` (see `games.seeds`), `return_range`; and
    for rules on a server `recorded_states` (see `is_remote`) and `sessions()`, the context of a rollout.
    """

    id: str
    """The versioned name, such as `Snake-Standard-v1`; a changed rule is a new version."""
    rows: int
    """The number of rows of the board."""
    columns: int
    """The number of columns of the board."""
    horizon: int
    """The number of turns after which an episode is truncated."""
    actions: tuple[str, ...]
    """The available actions, in the order of gymnasium's `Discrete` space."""
    instructions: str
    """The task in a sentence or two, for the prompt."""
    rules: tuple[str, ...]
    """The rules, one sentence or two each, for the prompt."""
    symbols: Mapping[str, str]
    """Grid symbol → its meaning."""
    reward_range: tuple[float, float]
    """The smallest and largest reward of one step."""
    initial_state: Callable[[np.random.Generator], Any]
    """`initial_state(rng)` samples s0."""
    step: Callable[[Any, str | None, np.random.Generator], Transition[Any]]
    """`step(state, action, rng)` plays a turn. Raises `ValueError` for an unavailable action and after the end of an episode."""
    observe: Callable[[Any], str]
    """`observe(state)` is the text observation: everything that a language agent sees of the state."""
    grid: Callable[[Any], list[str]]
    """`grid(state)` is the board as `rows` strings of `columns` one-character symbols."""
    legal_actions: Callable[[Any], tuple[str, ...]]
    """`legal_actions(state)` move the player neither into a wall nor into its own body. May be empty."""
    safe_actions: Callable[[Any], tuple[str, ...]]
    """`safe_actions(state)` are the legal actions that do not enter a danger visible on the board. May be empty."""
    succeeded: Callable[[Any], bool]
    """`succeeded(state)`: whether an episode that ends in this state is a success."""


class Solvable(Game):
    """A game with known probabilities and few states, whose exact values can be computed (see `games.solving`).

    The game and its states must be hashable. A state must include the turn, since values depend on the turns left.
    """

    outcomes: Callable[[Any, str | None], Sequence[tuple[float, Transition[Any]]]]
    """`outcomes(state, action)`: P(s', r | s, a) as (probability, transition) pairs; `step` samples one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A moving body that covers several cells."""

    cells: tuple[Cell, ...]
    """From head to tail."""
    alive: bool = True


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


class HasScene(Game):
    """A game that describes its states as scenes. Other games are drawn from their grids and symbols."""

    directions: Mapping[str, Cell]
    """Action → its move on the board, as (rows, columns)."""
    pictures: Mapping[str, str]
    """Grid symbol → the name of its drawing (see `rendering/board_art.svg`)."""
    scene: Callable[[Any], Scene]
    """`scene(state)` is the scene of a state."""


class SquareBoard(HasScene):
    """A game with scenes on a square board, and the four directions as actions."""

    size: int
    actions = tuple(DIRECTIONS)
    directions = DIRECTIONS

    def board(self, state: Any) -> str:
        """The symbols of a board, equal for mirrored and turned boards."""
        return canonical(self.grid(state))

    def legal_actions(self, state: Any) -> tuple[str, ...]:
        """The actions that lead neither off the board nor into the player's own body."""
        scene = self.scene(state)
        own = {cell for body in scene.bodies[:1] for cell in body.cells}
        ahead = {action: neighbour(scene.player, action) for action in self.actions}
        return tuple(action for action, end in ahead.items() if inside(end, self.size, self.size) and end not in own)

    def safe_actions(self, state: Any) -> tuple[str, ...]:
        """The legal actions that enter no blocked cell."""
        scene = self.scene(state)
        return tuple(action for action in self.legal_actions(state) if neighbour(scene.player, action) not in scene.blocked)


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
    """The smallest and largest return of an episode: the game's own `return_range`, else the (often wide) bounds of its rewards.

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
