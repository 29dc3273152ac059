"""The first sentence and the examples of the page, with figures from the bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

import names
import players
import replay
from replay import BASE, FIRST

from msgrpo_hub.downloads.names import adapters_path
from msgrpo_hub.episode import Episode
from msgrpo_hub.games import make_game

SNAKES = {"Snake-Solo-v1": "snake", "Snake-Standard-v1": "snake-standard"}
LAKES = {"FrozenLake-NotSlippery-v1": FIRST[2], "FrozenLake-Slippery-v1": "lake-slippery"}
"""Game → the adapter that was trained for it."""


def training_seconds(adapter: str) -> float | None:
    """How long a built-in adapter was trained; None for any other."""
    if adapter not in players.ADAPTERS:
        return None
    about = json.loads((adapters_path() / f"{adapter}.json").read_text(encoding="utf-8"))
    return float(about["seconds_training"])


def sentence() -> str:
    """A sentence about the two boards that the page opens with, with the figures of the bundled comparison."""
    found, seconds = players.bundled("compare"), training_seconds(FIRST[2])
    before, after = (percent(found[side]["success"]["mean"]) for side in ("a", "b"))
    trained = f"{duration(seconds)} of training" if seconds else "training"
    return (
        f"One language model of {names.parameters() / 1e6:.1f} million parameters, before and after {trained}: "
        f"it reached the goal in {before} of {found['episodes']} test episodes, then in {after}."
    )


def percent(share: float) -> str:
    """A share as a visitor reads it.

    >>> percent(0.005), percent(0.98)
    ('0.5\\xa0%', '98\\xa0%')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + "\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """A time as a visitor reads it.

    >>> duration(40), duration(65), duration(140)
    ('40 seconds', 'one minute', '2 minutes')
    """
    minutes = round(seconds / 60)
    return f"{round(seconds)} seconds" if seconds < 45 else "one minute" if minutes < 2 else f"{minutes} minutes"


def examples() -> list[tuple[str, str]]:
    """(caption, address) of bundled replays that are worth a click."""
    longest = max(_episodes(SNAKES), key=lambda each: sum(step.reward > 0 for step in each[2].steps))
    failure = next((each for each in _episodes(LAKES) if not each[2].success), None)
    shown = [("watch it succeed", (FIRST[0], FIRST[1])), ("the longest snake", longest[:2])]
    shown[1:1] = [("watch it fail", failure[:2])] if failure else []
    links = [(words, link(game, number, (LAKES | SNAKES)[game], BASE)) for words, (game, number) in shown]
    return [*links, ("told that the goal is a trap", "?tab=Rules")]


def _episodes(adapters: Mapping[str, str]) -> Iterator[tuple[str, int, Episode]]:
    """(game, board, episode) of each game's adapter in the bundle."""
    for game_id, player in adapters.items():
        for number, replies in players.bundled("replays").get(game_id, {}).get(player, {}).items():
            yield game_id, int(number), replay.play_replies(make_game(game_id), int(number), replies)


def link(game: str, board: int, player: str, beside: str = "") -> str:
    """The address of a replay, as the page understands it."""
    return "?" + urlencode({"game": game, "board": board, "player": player, "beside": beside})
