"""Replays as the page shows them: with the names that visitors see, and what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import names
import replay
from watch import watch


def film(found: replay.Data, asked: Sequence[Any]) -> replay.Data:
    """A replay as the page shows it.

    Args:
        found: the replay.
        asked: the values of the inputs that it was made with; the page greys it while they are others.
    """
    shown = [{**each, "title": names.player(each["player"])} for each in found["players"]]
    return {**found, "players": shown, "caption": caption(shown[0]["game"]["title"], found["number"]), "asked": list(asked)}


def caption(game_id: str, board: int) -> list[str]:
    """The name of a game and a board, and the game's id."""
    own = game_id.partition(":told")[0]
    return [f"{names.game(own)}, board {board}", own]


def side_by_side(game: str, board: int, player: str, beside: str) -> replay.Data:
    """A player on a board, to the right of another one; empty for none. Raises `UserError` like `watch`."""
    found = watch(game, board, player)
    if beside and beside != player:
        found = replay.combine(found["number"], [*watch(game, board, beside)["players"], *found["players"]])
    return film(found, (game, board, player, beside))
