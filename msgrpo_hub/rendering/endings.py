"""How an episode ended, in words: "fell into a hole"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgrpo_hub.games import Game
from msgrpo_hub.games.board import inside, moved
from msgrpo_hub.games.game import HasScene, has_scene
from msgrpo_hub.rendering.board_svg import moves


def label(*, success: bool, terminated: bool) -> str:
    """How an episode ended, as a short label: success, survived, out of turns, or lost."""
    if success:
        return "success" if terminated else "survived"
    return "lost" if terminated else "out of turns"


def how_it_ended(game: Game, states: Sequence[Any], last: str | None, *, success: bool, terminated: bool) -> str:
    """How an episode ended, as the end of a sentence about the player.

    Args:
        game: the rules.
        states: the states of the episode.
        last: the last action.
        success: whether the episode was one.
        terminated: whether the game ended it, not the number of turns.
    """
    if not has_scene(game) or len(states) < 2:
        return label(success=success, terminated=terminated)
    scene, turns = game.scene(states[-1]), len(states) - 1
    if scene.bodies and not scene.bodies[0].alive:
        return _death(game, states[-2], last)
    if scene.bodies:
        return "survived, the other snake died" if terminated else f"survived all {turns} turns"
    if scene.posture == "goal":
        why = "" if success else " on the wrong turn" if scene.wanted else ", which is a trap"
        return f"reached the goal{why}"
    if scene.posture == "hole":
        return "fell into a hole"
    return f"stayed on the ice for {turns} turns" if success else f"ran out of turns after {turns}"


def _death(game: HasScene, before: Any, action: str | None) -> str:
    """What killed a snake: what lay on the cell that its last move led to."""
    if action is None:
        return "died"
    me, *_ = game.scene(before).bodies
    ahead = moved(me.cells[0], moves(game)[action])
    if not inside(ahead, game.rows, game.columns):
        return "ran into the wall"
    return "bit itself" if ahead in me.cells else "ran into the other snake"
