"""The first sentence and the examples of the page, with figures from the bundle."""

from __future__ import annotations

import json
from html import escape
from urllib.parse import urlencode

import names
import players
import replay
from replay import BASE, FIRST

from msgrpo_hub.downloads.names import adapters_path
from msgrpo_hub.games import make_game

SNAKES = {"Snake-Solo-v1": "snake", "Snake-Standard-v1": "snake-standard"}
LAKES = {"FrozenLake-NotSlippery-v1": FIRST[2], "FrozenLake-Slippery-v1": "lake-slippery"}
"""Game → the adapter that was trained for it."""


def sentence() -> str:
    """A sentence about the two boards that the page opens with; if they are bundled, with the figures of the comparison."""
    if run := players.own_run():
        own, base = map(escape, run.sources)
        return f"Your run {own} beside {base}, the model that it started from. Both play now, turn by turn."
    found = players.bundled("compare")
    about = json.loads((adapters_path() / f"{FIRST[2]}.json").read_text(encoding="utf-8"))
    before, after = (percent(found[side]["success"]["mean"]) for side in ("a", "b"))
    return (
        f"One language model of {names.parameters() / 1e6:.1f} million parameters, before and after "
        f"{about['seconds_training']:.0f} seconds of training: "
        f"it reached the goal in {before} of {found['episodes']} test episodes, then in {after}."
    )


def percent(share: float) -> str:
    """A share as a visitor reads it.

    >>> percent(0.005), percent(0.98)
    ('0.5\\xa0%', '98\\xa0%')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + "\N{NO-BREAK SPACE}%"


def examples() -> list[tuple[str, str]]:
    """(caption, address) of bundled replays that are worth a click."""
    stored = players.bundled("replays")
    snakes, lakes = (
        [
            (game, int(number), replay.play_replies(make_game(game), int(number), replies))
            for game, player in adapters.items()
            for number, replies in stored[game][player].items()
        ]
        for adapters in (SNAKES, LAKES)
    )
    longest = max(snakes, key=lambda each: sum(step.reward > 0 for step in each[2].steps))
    failure = next(each for each in lakes if not each[2].success)
    shown = {"watch it succeed": FIRST, "watch it fail": failure, "the longest snake": longest}
    links = [(words, link(game, number, (LAKES | SNAKES)[game], BASE)) for words, (game, number, _) in shown.items()]
    return [*links, ("told that the goal is a trap", "?tab=Rules")]


def link(game: str, board: int, player: str, beside: str = "") -> str:
    """The address of a replay, as the page understands it."""
    return "?" + urlencode({"game": game, "board": board, "player": player, "beside": beside})
