"""Exact values of solvable games, by finite-horizon value iteration (Puterman, Markov Decision Processes, 1994, §4.5).

The states reachable from a start are expanded turn by turn. Their values are then computed backwards, from the last turn to
the start. Every `Solvable` game is solved this way, also of other packages.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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

    def of(self, state: Any, action: str | None) -> float:
        """Q*(s, a); None means "no action"."""
        return float(self.q[self.rows[state], -1 if action is None else self.actions.index(action)])


def solve(game: Solvable, start: Any) -> Values:
    """Solves a game from one state: Q(s, a) = Σ P(s', r | s, a) (r + V(s')), V(s) = max_a Q(s, a), and V = 0 after the end.

    Raises `UserError` for a game with too many states, or with outcomes that continue after its horizon.
    """
    # 1) Expand the reachable states turn by turn. `turns` has, for each turn with n states and K outcomes of all their actions,
    #    the states and four arrays of length K: the entry of q that an outcome belongs to, its probability, its reward, and the
    #    row of the next state in the next turn, or -1 if the episode ends.
    options, count = (*game.actions, None), 0
    turns: list[tuple[dict[Any, int], tuple[Any, ...]]] = []
    states = {start: 0}
    while states:
        count += len(states)
        if count > LARGEST:
            raise UserError(f"{game.id} has over {LARGEST} states from one start: expected fewer, or a game without `outcomes`")
        if len(turns) == game.horizon:
            raise UserError(f"outcomes of {game.id} continue after its {game.horizon} turns: expected `truncated` on the last")
        following: dict[Any, int] = {}
        outcomes = []
        for row, state in enumerate(states):
            for column, action in enumerate(options):
                for chance, after in game.outcomes(state, action):
                    ended = after.terminated or after.truncated
                    ahead = -1 if ended else following.setdefault(after.state, len(following))
                    outcomes.append((row * len(options) + column, chance, after.reward, ahead))
        turns.append((states, tuple(map(np.array, zip(*outcomes, strict=True)))))
        states = following

    # 2) Compute the values backwards, from the last turn. `later` are the values of the next turn.
    tables: list[Floats] = []
    uniform: list[Floats] = []
    for states, (cells, chances, rewards, ahead) in reversed(turns):
        expected = []
        for later in (tables[-1][:, :-1].max(axis=1), uniform[-1]) if tables else (np.zeros(0), np.zeros(0)):
            returns = rewards + np.append(later, 0.0)[ahead]  # -1 is the appended 0
            sums = np.bincount(cells, chances * returns, len(states) * len(options))
            expected.append(np.asarray(sums, np.float64).reshape(-1, len(options)))
        tables.append(expected[0])
        uniform.append(expected[1][:, :-1].mean(axis=1))
    table = np.concatenate(tables[::-1])
    return Values(
        rows={state: row for row, state in enumerate(state for states, _ in turns for state in states)},
        actions=tuple(game.actions),
        q=table,
        optimal=table[:, :-1].max(axis=1),
        uniform=np.concatenate(uniform[::-1]),
    )


_latest: defaultdict[Solvable, deque[Values]] = defaultdict(lambda: deque(maxlen=KEPT))
"""The most recent values of each game."""


def values_at(game: Game, state: Any) -> Values:
    """Values of a state: of a cached start that reaches it, or solved from it. Raises `UserError` for an unsolvable game."""
    if not is_solvable(game):
        raise UserError(f"{game.id} has no exact optimum: expected a game with `outcomes`, such as Frozen Lake")
    latest = _latest[game]
    for values in reversed(tuple(latest)):  # other threads may solve other states meanwhile
        if state in values.rows:
            return values
    found = solve(game, state)
    latest.append(found)
    return found


def best_actions(values: Values, state: Any, actions: Iterable[str]) -> tuple[str, ...]:
    """The best of some actions, including ties."""
    worth = {action: values.of(state, action) for action in actions}
    return tuple(action for action in worth if worth[action] >= max(worth.values()) - TIE)


def soonest_optimal_actions(game: Game, state: Any) -> tuple[str, ...]:
    """The optimal actions that leave the most turns to spare. Raises `UserError` for a game that is not solvable.

    With turns to spare, a detour is worth as much as the direct way. Among equally good actions, these would still be best
    after a turn without an action, and so on.
    """
    values, best = values_at(game, state), game.actions
    assert is_solvable(game)
    while True:
        best = best_actions(values, state, best)
        [(_, waited), *others] = game.outcomes(state, None)
        if len(best) == 1 or others or waited.terminated or waited.truncated:
            return best
        state = waited.state


def start_values(game: Game, seed: int) -> tuple[float, float]:
    """The expected returns of optimal and of uniformly random play from the start of an episode seed; `UserError` as above."""
    start = game.initial_state(stream(seed, "initial_state"))
    values = values_at(game, start)
    return values.best(start), values.blind(start)


def silent_value(game: Solvable, seed: int) -> float:
    """The expected return of the player `silent`, which never acts, from the start of an episode seed."""
    chances, value = {game.initial_state(stream(seed, "initial_state")): 1.0}, 0.0
    while chances:
        ahead: defaultdict[Any, float] = defaultdict(float)
        for state, chance in chances.items():
            for share, after in game.outcomes(state, None):
                value += chance * share * after.reward
                ahead[None if after.terminated or after.truncated else after.state] += chance * share
        chances = {state: chance for state, chance in ahead.items() if state is not None}
    return value
