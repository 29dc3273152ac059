"""`msgrpo games`: the games and their rules."""

from __future__ import annotations

import argparse
from typing import Any

from msgrpo_hub.cli.output import add_json, print_json, print_next
from msgrpo_hub.games import Game, all_games


def add_games(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "print ids, actions, rewards and rules as JSON")
    parser.set_defaults(run=_games)


def _games(options: argparse.Namespace) -> None:
    games = all_games().values()
    if options.json:
        print_json([describe(game) for game in games])
    else:
        for game in games:
            print(
                f"{game.id:<28}{game.rows}×{game.columns}, {game.horizon} turns, rewards of a step in {list(game.reward_range)}"
            )
    print_next("msgrpo play FrozenLake-NotSlippery-v1 --player human")


def describe(game: Game) -> dict[str, Any]:
    """A game as plain data."""
    return {
        "id": game.id,
        "rows": game.rows,
        "columns": game.columns,
        "horizon": game.horizon,
        "actions": game.actions,
        "reward_range": game.reward_range,
        "instructions": game.instructions,
        "rules": game.rules,
    }
