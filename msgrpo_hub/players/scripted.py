"""Reference players and exact values: what the best and the blindest play are worth on the very maps a player is given.

Frozen Lake is small enough to solve: V_t(s), the best expected return with t turns left, by finite-horizon value
iteration (Puterman, Markov Decision Processes, 1994, §4.5). Snake is not; its reference is the greedy player.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import Cell, inside, neighbour
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.snake import SnakeState
from msgrpo_hub.games.solving import best_actions, lake_values, solved_lake


def choose_optimal(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The optimal action that wins soonest: the player `optimal`. Raises `UserError` for a game that is not solved.

    With turns to spare, walking in circles is as good as walking to the goal: of equally good actions it takes those that
    would be best with one turn fewer, and so on, and of what is left the first.
    """
    lake = solved_lake(game)
    values, left = lake_values(lake, state.holes), list(range(len(lake.actions)))
    for turns in range(lake.horizon - state.turn, 0, -1):
        left = best_actions(values.action_values(state.player, turns), left)
    return lake.actions[left[0]]


def choose_greedy(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The first step of a shortest way: on the lake to the goal, in Snake to the nearest item, whatever it is worth.

    The player `greedy`. It knows neither slipping nor poison, and it steers clear of the cells that the opponent's head
    can reach this turn: the authors' greedy must do so too, for its rewards with good and with bad apples, 4.76 and
    −4.79, leave no room for deaths. Ties go to the action that the game lists first, then to the first cell found.

    Raises `UserError` for a game of another package.
    """
    if isinstance(state, LakeState):
        start, blocked, wanted = state.player, state.holes, {state.goal}
    elif not isinstance(state, SnakeState):
        raise UserError(f"the player 'greedy' does not know {game.id}: use 'random-safe' instead")
    else:
        start, blocked = state.snake[0], (*state.snake, *state.opponent)
        wanted = {cell for cells in state.items for cell in cells}
    moves = {neighbour(start, action): action for action in _careful_actions(game, state)}
    return _way_to(wanted, moves, {start, *blocked}, game) or next(iter(moves.values()))


def _careful_actions(game: Game, state: Any) -> tuple[str, ...]:
    """The safe actions that cannot end head to head, or the safe ones where there are none; all where none is safe."""
    safe = game.safe_actions(state)
    if isinstance(state, LakeState) or not state.opponent:
        return safe or game.actions
    contested = {neighbour(state.opponent[0], action) for action in game.actions}
    return tuple(a for a in safe if neighbour(state.snake[0], a) not in contested) or safe or game.actions


def _way_to(wanted: Collection[Cell], moves: Mapping[Cell, str], blocked: Collection[Cell], game: Game) -> str | None:
    """The move (cell entered → action) that begins a shortest way to a wanted cell around the blocked ones, if one does."""
    queue = deque(moves.items())
    seen = {*blocked, *moves}
    while queue:
        here, first = queue.popleft()
        if here in wanted:
            return first
        ahead = [cell for action in game.actions if inside(cell := neighbour(here, action), game.size) and cell not in seen]
        seen.update(ahead)
        queue.extend((cell, first) for cell in ahead)
    return None


def _uniform(actions: Sequence[str], rng: np.random.Generator) -> str:
    return actions[int(rng.integers(len(actions)))]


def choose_random(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """Uniform over all actions: the player `random`."""
    return _uniform(game.actions, rng)


def choose_random_legal(game: Game, state: Any, rng: np.random.Generator) -> str:
    """Uniform over the legal actions, or over all where none is legal."""
    return _uniform(game.legal_actions(state) or game.actions, rng)


def choose_random_safe(game: Game, state: Any, rng: np.random.Generator) -> str:
    """Uniform over the safe actions, or over all where none is safe: the player `random-safe`."""
    return _uniform(game.safe_actions(state) or game.actions, rng)
