"""The Watch tab: one player on one seed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import players
import replay
import validation

from msgrpo_hub.episode import Episode
from msgrpo_hub.games import make_game

LAKE, ADAPTER, BASE = "FrozenLake-NotSlippery-v1", "lake", "pocket"


def watch(game: str, seed: int, player: str) -> dict[str, Any]:
    """Plays one episode. Returns its boards, prompts, replies, actions, legal and optimal actions, rewards and regrets.

    Args:
        game: id of a game, such as FrozenLake-NotSlippery-v1 or Snake-Solo-v1:reflected.
        seed: number of the test episode, 0 to 9999.
        player: a built-in player (random, random-safe, greedy, planner, optimal, pocket, lake, lake-slippery,
            lake-trap, snake, snake-standard), or a model on the Hub: USER/NAME, USER/NAME@revision or BASE+ADAPTER.

    Returns:
        The replay; the Space's README describes its fields.
    """
    rules, number = validation.game(game), validation.number(seed)
    players.check_player(player, rules)
    stored = replay.bundled_replay(bundled(), rules.id, number, player)
    if stored is not None:
        return stored
    with players.line(player).place():
        [episode] = players.play(player, rules, [replay.seed_of(rules, number)])
    return replay.combine(number, [replay.player_data(rules, player, episode, players.asked_in(player))])


@cache
def bundled() -> dict[str, Any]:
    """The bundled episodes: game → player → number of the episode → replies."""
    found: dict[str, Any] = json.loads((players.BUNDLE / "replays.json").read_text(encoding="utf-8"))
    return found


def _first_board() -> int:
    """The bundled board that shows the most: the adapter reaches the goal, and the base falls into a hole as late as possible."""
    game, of = make_game(LAKE), bundled()[LAKE]

    def episode(player: str, number: str) -> Episode:
        return replay.play_replies(game, int(number), replay.stored(of[player][number]))

    solved = [number for number in of[ADAPTER] if number in of[BASE] and episode(ADAPTER, number).success]
    falls = {number: base for number in solved if not (base := episode(BASE, number)).success and base.terminated}
    return int(max(falls or solved, key=lambda number: len(of[BASE][number])))


FIRST = (LAKE, _first_board(), ADAPTER)
"""Game, board and player that the page opens with; the untrained base plays beside it."""
