"""Scripted players: rules that choose an action from the state. Their scores are the references for models.

`optimal` plays every solvable game, such as Frozen Lake. Snake is not solved, so its references are `greedy` and `planner`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from msgrpo_hub.agent.policy import Chooser
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import inside, neighbour
from msgrpo_hub.games.game import has_scene, is_solvable
from msgrpo_hub.games.snake import Snake
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
    # 1) The moves to choose from, by the cells that they enter.
    scene, safe = game.scene(state), game.safe_actions(state)
    ahead = {action: neighbour(scene.player, action, game.directions) for action in game.actions}
    careful = [action for action in safe if ahead[action] not in scene.contested] or safe or game.actions
    moves = {ahead[action]: action for action in careful}
    # 2) The first step of a shortest path to a wanted cell around the blocked ones.
    queue = deque(moves.items())
    seen = {scene.player, *scene.blocked, *moves}
    while queue:
        here, first = queue.popleft()
        if here in scene.wanted:
            return first
        cells = [neighbour(here, action, game.directions) for action in game.actions]
        free = [cell for cell in cells if inside(cell, game.rows, game.columns) and cell not in seen]
        seen.update(free)
        queue.extend((cell, first) for cell in free)
    return next(iter(moves.values()))


def choose_random(game: Game, state: Any, rng: np.random.Generator, among: Literal["all", "legal", "safe"] = "all") -> str:
    """The players `random`, `random-legal` and `random-safe`: uniform over these actions, or over all if there are none."""
    actions = game.legal_actions(state) if among == "legal" else game.safe_actions(state) if among == "safe" else ()
    actions = actions or game.actions
    return actions[int(rng.integers(len(actions)))]


choose_random_legal = partial(choose_random, among="legal")
choose_random_safe = partial(choose_random, among="safe")

SCRIPTED: dict[str, Chooser] = {
    "silent": lambda *_: None,  # doing nothing can score, because it touches no poisoned apple
    "random": choose_random,
    "random-legal": choose_random_legal,
    "random-safe": choose_random_safe,
    "greedy": choose_greedy,
    "planner": choose_planner,
    "optimal": choose_optimal,
}

KNOWS: dict[str, Callable[[Game], bool]] = {
    "greedy": has_scene,
    "planner": lambda game: isinstance(game, Snake),
    "optimal": is_solvable,
}
"""Scripted players that know only some games → whether they know a game."""
