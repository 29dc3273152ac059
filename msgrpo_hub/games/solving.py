"""Exact values of solvable games, by finite-horizon value iteration (Puterman, Markov Decision Processes, 1994, §4.5).

The states reachable from a start are expanded turn by turn. Their values are then computed backwards, from the last turn to
the start. Every `Solvable` game is solved this way, including those of other packages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.games.game import Game, Solvable, is_solvable
from msgrpo_hub.games.seeds import stream

Floats = npt.NDArray[np.float64]

TIE = 1e-12
"""Actions whose values differ by less are equally good: smaller differences are rounding."""

KEPT = 256
"""Number of solved starts cached per game, the most recent ones; a start of the largest lake takes 0.3 MB."""

LARGEST = 300_000
"""Limit on the number of states expanded from one start."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """Exact values of all states reachable from one start. Shapes: N states, A actions in the game's order.

    >>> from msgrpo_hub.games import make_game
    >>> lake = make_game("FrozenLake-Slippery-v1")
    >>> start = lake.initial_state(stream(0, "initial_state"))
    >>> values = solve(lake, start)
    >>> round(values.best(start), 3), round(values.blind(start), 3), values.of(start, None) <= values.best(start)
    (0.31, 0.055, True)
    """

    rows: Mapping[Any, int]
    """State → its row in the arrays."""
    actions: tuple[str, ...]
    """The actions of the game."""
    q: Floats
    """q[n, a]: the expected return of action a, then of optimal play; the last column is "no action"; (N, A + 1)."""
    optimal: Floats
    """optimal[n] = max_a q[n, a] over the actions of the game: optimal play always acts; (N,)."""
    uniform: Floats
    """uniform[n]: the expected return of uniformly random actions; (N,)."""

    def best(self, state: Any) -> float:
        """V*(s), the expected return of optimal play."""
        return float(self.optimal[self.rows[state]])

    def blind(self, state: Any) -> float:
        """The expected return of uniformly random actions."""
        return float(self.uniform[self.rows[state]])

    def of_actions(self, state: Any) -> Floats:
        """Q*(s, ·) of the actions in the game's order, shape (A,)."""
        values: Floats = self.q[self.rows[state], :-1]
        return values

    def of(self, state: Any, action: str | None) -> float:
        """Q*(s, a); None means "no action"."""
        return float(self.q[self.rows[state], -1 if action is None else self.actions.index(action)])


@dataclass(frozen=True, slots=True)
class _Turn:
    """All outcomes of one turn. Shapes: n states, K outcomes of all their actions, W = A + 1 columns of q."""

    states: Mapping[Any, int]
    """State → its row among the n states of this turn."""
    cells: list[int] = field(default_factory=list)
    """The entry of q that an outcome belongs to: W · row + column; (K,)."""
    chances: list[float] = field(default_factory=list)
    """Probability of each outcome; (K,)."""
    rewards: list[float] = field(default_factory=list)
    """Reward of each outcome; (K,)."""
    ahead: list[int] = field(default_factory=list)
    """The row of the next state among those of the next turn, −1 if the episode ends; (K,)."""

    def expected(self, width: int, next_values: Floats) -> Floats:
        """Σ P(s', r | s, a) (r + v(s')), shape (n, W), from the values v of the next turn's states."""
        returns = np.array(self.rewards) + np.append(next_values, 0.0)[self.ahead]  # −1 is the appended 0
        sums = np.bincount(self.cells, np.array(self.chances) * returns, len(self.states) * width)
        return np.asarray(sums, np.float64).reshape(-1, width)


def solve(game: Solvable, start: Any) -> Values:
    """Solves a game from one state.

    Q(s, a) = Σ P(s', r | s, a) (r + V(s')) and V(s) = max_a Q(s, a), with V = 0 after the end of an episode.

    Raises:
        UserError: the game has too many states, or outcomes that continue after its horizon.
    """
    turns, width = _expand(game, start), len(game.actions) + 1
    q: list[Floats] = []
    uniform: list[Floats] = [np.zeros(0)]
    for turn in reversed(turns):  # q and uniform hold the later turns, the next one last
        q.append(turn.expected(width, q[-1][:, :-1].max(axis=1) if q else np.zeros(0)))
        uniform.append(turn.expected(width, uniform[-1])[:, :-1].mean(axis=1))
    states = [state for turn in turns for state in turn.states]
    table = np.concatenate(q[::-1])
    return Values(
        rows={state: row for row, state in enumerate(states)},
        actions=tuple(game.actions),
        q=table,
        optimal=table[:, :-1].max(axis=1),
        uniform=np.concatenate(uniform[:0:-1]),
    )


def _expand(game: Solvable, start: Any) -> list[_Turn]:
    """The states reachable from a start, turn by turn, with the outcomes of all their actions."""
    options = (*game.actions, None)
    turns: list[_Turn] = []
    states, count = {start: 0}, 0
    while states:
        count += len(states)
        if count > LARGEST:
            raise UserError(f"{game.id} has over {LARGEST} states from one start: expected fewer, or a game without `outcomes`")
        if len(turns) == game.horizon:
            raise UserError(
                f"the outcomes of {game.id} continue after its {game.horizon} turns: expected `truncated` on the last"
            )
        turn = _Turn(states)
        following: dict[Any, int] = {}
        for row, state in enumerate(states):
            for column, action in enumerate(options):
                for chance, after in game.outcomes(state, action):
                    ended = after.terminated or after.truncated
                    ahead = -1 if ended else following.setdefault(after.state, len(following))
                    turn.cells.append(row * len(options) + column)
                    turn.chances.append(chance)
                    turn.rewards.append(after.reward)
                    turn.ahead.append(ahead)
        turns.append(turn)
        states = following
    return turns


@lru_cache(maxsize=64)
def _latest(game: Solvable) -> deque[Values]:  # noqa: ARG001
    """The most recently computed values of a game."""
    return deque(maxlen=KEPT)


def values_at(game: Game, state: Any) -> Values:
    """Values that include a state: those of a cached start that reaches it, else those of the state itself.

    Raises:
        UserError: the game is not solvable.
    """
    if not is_solvable(game):
        raise UserError(f"{game.id} has no exact optimum: expected a game with `outcomes`, such as Frozen Lake")
    latest = _latest(game)
    for values in reversed(tuple(latest)):  # other threads may solve other states meanwhile
        if state in values.rows:
            return values
    found = solve(game, state)
    latest.append(found)
    return found


def optimal_actions(game: Game, state: Any) -> tuple[str, ...]:
    """All optimal actions, in the game's order. Raises `UserError` for a game that is not solvable."""
    return best_actions(values_at(game, state), state, game.actions)


def best_actions(values: Values, state: Any, actions: Iterable[str]) -> tuple[str, ...]:
    """The best of some actions, including ties."""
    worth = {action: values.of(state, action) for action in actions}
    return tuple(action for action in worth if worth[action] >= max(worth.values()) - TIE)


def soonest_optimal_action(game: Game, state: Any) -> str:
    """The first of `soonest_optimal_actions`. Raises `UserError` for a game that is not solvable."""
    return soonest_optimal_actions(game, state)[0]


def soonest_optimal_actions(game: Game, state: Any) -> tuple[str, ...]:
    """The optimal actions that leave the most turns to spare. Raises `UserError` for a game that is not solvable.

    With turns to spare, walking in circles is as good as walking to the goal. Among equally good actions, these are the ones
    that would still be best after a turn without an action, and so on.
    """
    values, best = values_at(game, state), game.actions
    assert is_solvable(game)
    while True:
        best = best_actions(values, state, best)
        [(_, waited), *others] = game.outcomes(state, None)
        if len(best) == 1 or others or waited.terminated or waited.truncated:
            return best
        state = waited.state


def optimal_value(game: Game, seed: int) -> float:
    """The expected return of optimal play from the initial state of an episode seed; `UserError` as above."""
    start = game.initial_state(stream(seed, "initial_state"))
    return values_at(game, start).best(start)


def random_value(game: Game, seed: int) -> float:
    """The expected return of the player `random` from the initial state of an episode seed; `UserError` as above."""
    start = game.initial_state(stream(seed, "initial_state"))
    return values_at(game, start).blind(start)


def silent_value(game: Solvable, seed: int) -> float:
    """The expected return of the player `silent`, which never acts, from the initial state of an episode seed.

    >>> from msgrpo_hub.games import make_game
    >>> silent_value(make_game("FrozenLake-Slippery-v1"), 0)
    0.0
    """
    chances, value = {game.initial_state(stream(seed, "initial_state")): 1.0}, 0.0
    while chances:
        ahead: dict[Any, float] = {}
        for state, chance in chances.items():
            for probability, after in game.outcomes(state, None):
                value += chance * probability * after.reward
                if not (after.terminated or after.truncated):
                    ahead[after.state] = ahead.get(after.state, 0.0) + chance * probability
        chances = ahead
    return value
