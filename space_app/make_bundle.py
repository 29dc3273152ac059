"""Makes the replays and first results of `bundle/`, which the Space shows without a network: `python space_app/make_bundle.py`.

The leaderboard of the bundle is written by `python -m benchmark report`.
"""

from __future__ import annotations

import json
from typing import Any

import players
import rules
from compare import OPENING, compare

from msgrpo_hub.games import episode_seed, make_game
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
    rules_tab = {name: list(rules.change_rules(player=name, **rules.ASKED_FIRST))[-1] for name in rules.OPENING_PLAYERS}
    bundle = {"replays": replays(), "compare": list(compare(*OPENING))[-1], "rules": rules_tab}
    for name, value in bundle.items():
        (players.BUNDLE / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


def replays() -> dict[str, Any]:
    """The replies of every episode: game → player → number of the episode → replies."""
    found: dict[str, Any] = {}
    for game_id, names in GAMES.items():
        game = make_game(game_id)
        seeds = [episode_seed(game_id, "test", number) for number in range(EPISODES)]
        for name in (name for name in names if can_play(name, game)):
            for number, episode in enumerate(players.play(name, game, seeds)):
                replies = [step.completion for step in episode.steps]
                stored = [each.text if each.finish == "stop" else {"text": each.text, "finish": each.finish} for each in replies]
                found.setdefault(game_id, {}).setdefault(name, {})[str(number)] = stored
    return found


if __name__ == "__main__":
    main()
