"""Scripted players: rules that choose an action from the state. Their scores are the references for models.

`optimal` plays every solvable game, such as Frozen Lake. Snake is not solved, so its references are `greedy` and `planner`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Chooser
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import Cell, inside, moved
from msgrpo_hub.games.game import HasScene, Scene, has_scene, is_solvable
from msgrpo_hub.games.snake import is_snake
from msgrpo_hub.games.solving import soonest_optimal_actions
from msgrpo_hub.players.planner import choose_planner


def choose_optimal(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The player `optimal`: the optimal action that wins soonest. Raises `UserError` for a game that is not solvable."""
    if not is_solvable(game):
        other = "greedy" if has_scene(game) else "random-safe"
        raise UserError(f"{game.id} has no exact optimum: use the player {other!r} instead of 'optimal'")
    return soonest_optimal_actions(game, state)[0]


def choose_greedy(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The player `greedy`: the first step of a shortest path to the goal of a lake, or to the nearest item in Snake.

    It ignores slipping and the rewards of items, and avoids the cells that the opponent's head can reach this turn. Ties go
    to the action that the game lists first, then to the first cell found.

    Raises `UserError` for a game that does not describe its states as scenes.
    """
    if not has_scene(game):
        raise UserError(f"the player 'greedy' does not know {game.id}: use 'random-safe' instead")
    scene, safe = game.scene(state), game.safe_actions(state)
    ahead = {action: moved(scene.player, game.directions[action]) for action in game.actions}
    careful = [action for action in safe if ahead[action] not in scene.contested] or safe or game.actions
    moves = {ahead[action]: action for action in careful}
    return _path_to(scene, moves, game) or next(iter(moves.values()))


def _path_to(scene: Scene, moves: Mapping[Cell, str], game: HasScene) -> str | None:
    """The action that starts a shortest path to a wanted cell around the blocked ones, or None; `moves`: cell → action."""
    queue = deque(moves.items())
    seen = {scene.player, *scene.blocked, *moves}
    while queue:
        here, first = queue.popleft()
        if here in scene.wanted:
            return first
        cells = [moved(here, game.directions[action]) for action in game.actions]
        ahead = [cell for cell in cells if inside(cell, game.rows, game.columns) and cell not in seen]
        seen.update(ahead)
        queue.extend((cell, first) for cell in ahead)
    return None


def _uniform(actions: Sequence[str], rng: np.random.Generator) -> str:
    return actions[int(rng.integers(len(actions)))]


def choose_silent(game: Game, state: Any, rng: np.random.Generator) -> None:
    """The player `silent`: replies nothing. Doing nothing can score, because it touches no poisoned apple."""


def choose_random(game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG001
    """The player `random`: uniform over all actions."""
    return _uniform(game.actions, rng)


def choose_random_legal(game: Game, state: Any, rng: np.random.Generator) -> str:
    """The player `random-legal`: uniform over the legal actions, or over all if none is legal."""
    return _uniform(game.legal_actions(state) or game.actions, rng)


def choose_random_safe(game: Game, state: Any, rng: np.random.Generator) -> str:
    """The player `random-safe`: uniform over the safe actions, or over all if none is safe."""
    return _uniform(game.safe_actions(state) or game.actions, rng)


SCRIPTED: dict[str, Chooser] = {
    "silent": choose_silent,
    "random": choose_random,
    "random-legal": choose_random_legal,
    "random-safe": choose_random_safe,
    "greedy": choose_greedy,
    "planner": choose_planner,
    "optimal": choose_optimal,
}

SAMPLING = frozenset({"random", "random-legal", "random-safe"})
"""Scripted players that sample their actions; the others always answer one state in the same way."""

KNOWS: dict[str, Callable[[Game], bool]] = {"greedy": has_scene, "planner": is_snake, "optimal": is_solvable}
"""Scripted players that know only some games → whether they know a game."""
