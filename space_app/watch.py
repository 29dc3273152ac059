"""Watch: one player on one seed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import checks
import players
import replay

FIRST = ("FrozenLake-NotSlippery-v1", 3, "lake-adapter")
"""What the page shows before anybody has asked for anything."""


def watch(game: str, seed: int, player: str) -> dict[str, Any]:
    """Plays one episode and returns all of it: boards, prompts, replies, actions, legal and optimal moves, rewards, regret.

    Args:
        game: id of a game, such as FrozenLake-NotSlippery-v1 or Snake-Solo-v1:reflected.
        seed: number of the test episode, 0 to 9999.
        player: a built-in player (random, random-safe, greedy, planner, optimal, pocket, lake-adapter, snake-adapter), or a
            model on the Hub: USER/NAME, USER/NAME@revision or BASE+ADAPTER.

    Returns:
        The film, as in replay.py.
    """
    rules, number = checks.game(game), checks.number(seed)
    players.check_player(player, rules)
    ready = replay.bundled_film(bundled(), rules.id, number, player)
    if ready is not None:
        return ready
    [episode] = players.play(player, rules, [replay.seed_of(rules, number)])
    return replay.film(rules, number, {player: episode})


@cache
def bundled() -> dict[str, Any]:
    """Game → player → number of an episode → replies: the episodes that come with the Space."""
    found: dict[str, Any] = json.loads((players.BUNDLE / "replays.json").read_text(encoding="utf-8"))
    return found
