"""The exact values and the exact gradient of a policy in a solvable game.

A policy is a table: for each prompt, the probabilities of the game's actions and of "no action" (⊥). States are those of
`Solvable.outcomes`, so they include the turn; prompts may not, and states with equal observations share a row of the table.
With Q_t(s, a) of the policy itself and d_t(s), the probability that an episode is in s on turn t,

    ∇J = Σ_t Σ_s d_t(s) Σ_a ∇π(a | s) Q_t(s, a) = Σ_t Σ_s d_t(s) Σ_a π(a | s) (Q_t(s, a) − V_t(s)) ∇log π(a | s),

where J is the expected composite return, undiscounted (the policy gradient theorem of Sutton et al., 1999, for a finite
horizon; V_t(s) may be subtracted because Σ_a ∇π(a | s) = 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games.game import Solvable

# Shapes: N prompts, O options (the actions of the game in its order, then "no action").

Floats = npt.NDArray[np.float64]


def states_by_turn(game: Solvable, start: Any) -> list[list[Any]]:
    """The states in which the player may have to act, turn by turn, whatever it does."""
    turns = [[start]]
    while turns[-1]:
        found = (
            after.state
            for state in turns[-1]
            for action in (*game.actions, None)
            for _, after in game.outcomes(state, action)
            if not (after.terminated or after.truncated)
        )
        turns.append(list(dict.fromkeys(found)))
    return turns[:-1]


def observations_of(game: Solvable, starts: Iterable[Any]) -> dict[str, Any]:
    """Observation → one of the states that show it, over all states reachable from the starts; N of them."""
    states = [state for start in starts for turn in states_by_turn(game, start) for state in turn]
    return {game.observe(state): state for state in reversed(states)}


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Values of a policy from one start."""

    q: Mapping[Any, Floats]
    """State → Q(s, ·) of the policy, format penalty included; (O,)."""
    v: Mapping[Any, float]
    """State → V(s)."""
    visits: Mapping[Any, float]
    """State → d(s), the probability that an episode comes through it."""

    @property
    def value(self) -> float:
        """J, the expected composite return from the start."""
        return self.v[next(iter(self.visits))]


def solve_policy(game: Solvable, start: Any, policy: Callable[[Any], Floats], format_penalty: float) -> Solution:
    """Q and V backwards from the last turn, d forwards from the start.

    Args:
        game: the rules.
        start: the initial state.
        policy: state → the probabilities of its options, (O,).
        format_penalty: taken from the reward of "no action" [−Φ].
    """
    turns, options = states_by_turn(game, start), (*game.actions, None)
    q: dict[Any, Floats] = {}
    v: dict[Any, float] = {}
    for states in reversed(turns):
        for state in states:
            q[state] = np.array(
                [
                    sum(chance * (after.reward + v.get(after.state, 0.0)) for chance, after in game.outcomes(state, action))
                    - format_penalty * (action is None)
                    for action in options
                ]
            )
            v[state] = float(policy(state) @ q[state])
    visits = {state: 0.0 for states in turns for state in states} | {start: 1.0}
    for state in visits:  # in the order of turns
        for action, probability in zip(options, policy(state), strict=True):
            for chance, after in game.outcomes(state, action):
                if after.state in visits:
                    visits[after.state] += visits[state] * probability * chance
    return Solution(q=q, v=v, visits=visits)


def gradient_weights(solutions: Sequence[Solution], policy: Callable[[Any], Floats], row_of: Callable[[Any], int]) -> Floats:
    """(N, O) the weight of each ∇log π(a | prompt) in the gradient of the mean of J over the starts.

    Args:
        solutions: of the starts.
        policy: state → the probabilities of its options, (O,).
        row_of: state → the row of its prompt.
    """
    states = [(state, solution) for solution in solutions for state in solution.visits]
    weights = np.zeros((1 + max(row_of(state) for state, _ in states), len(policy(states[0][0]))))
    for state, solution in states:
        weights[row_of(state)] += solution.visits[state] * policy(state) * (solution.q[state] - solution.v[state])
    return weights / len(solutions)
