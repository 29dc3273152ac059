"""Makes the replays and first results of `bundle/`, which the Space shows without a network: `python space_app/make_bundle.py`.

The leaderboard of the bundle is written by `python -m benchmark report`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import players
import replay
import rules
from compare import OPENING, compare

from msgrpo_hub.games import make_game
from msgrpo_hub.players import can_play

GAMES = {
    "FrozenLake-NotSlippery-v1": ("pocket", "lake"),
    "FrozenLake-Slippery-v1": ("pocket", "lake", "lake-slippery"),
    "Snake-Solo-v1": ("pocket", "snake"),
    "Snake-Standard-v1": ("pocket", "snake", "snake-standard"),
}
EPISODES = 10
"""Bundled episodes of each player on each game."""


def main() -> None:
    write(players.BUNDLE / "replays.json", replays())
    write(players.BUNDLE / "compare.json", list(compare(*OPENING))[-1])
    write(players.BUNDLE / "rules.json", judgements())


def judgements() -> dict[str, Any]:
    """Player → its last answer on the changed rules that the Rules tab opens with."""
    return {name: list(rules.change_rules(player=name, **rules.asked_first()))[-1] for name in rules.OPENING_PLAYERS}


def replays() -> dict[str, Any]:
    """The replies of every episode: game → player → number of the episode → replies."""
    numbers = range(EPISODES)
    found: dict[str, Any] = {}
    for game_id, names in GAMES.items():
        game = make_game(game_id)
        seeds = [replay.seed_of(game, number) for number in numbers]
        for name in (name for name in names if can_play(name, game)):
            episodes = players.play(name, game, seeds)
            found.setdefault(game_id, {})[name] = {
                str(number): [
                    step.completion.text
                    if step.completion.finish == "stop"
                    else {"text": step.completion.text, "finish": step.completion.finish}
                    for step in episode.steps
                ]
                for number, episode in zip(numbers, episodes, strict=True)
            }
    return found


def write(path: Path, value: Any, indent: int | None = None) -> None:
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
