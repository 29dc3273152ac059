"""`msgrpo games`: the games and their rules."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import FURTHER, Game, Split, all_games, distinct_boards, episode_seed, is_remote, make_game, splits_of

SUITE_EPISODES = 50
"""Episodes per game of a suite that `--suite` prints."""


SHOWN: tuple[tuple[Split, int], ...] = (("validation", 50), ("test", 50), ("test", 200))
"""Splits and numbers of episodes whose boards are counted: those of the suites quick, paper and standard."""


def add_games(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "game", metavar="GAME", nargs="*", help="show the rules and the task hash of these games. Default: list all"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--suite", action="store_true", help="print a suite of these games as TOML, as `msgrpo eval --suite` reads it"
    )
    add_json(either, "print ids, actions, rewards and rules as JSON")
    parser.set_defaults(run=_games)


def _games(options: argparse.Namespace) -> None:
    if options.suite:
        _print_suite(options.game)
    elif options.game:
        _print_rules([make_game(game_id) for game_id in options.game], options.json)
    else:
        _list_games(options)


def _print_suite(game_ids: list[str]) -> None:
    from msgrpo_hub.evaluation.suites import hash_of  # hashes are computed by play: only where they are asked for

    if not game_ids:
        raise UserError("a suite of no games: expected their ids, such as `msgrpo games FrozenLake-NotSlippery-v1 --suite`")
    tasks = [f'"{game_id}" = "{hash_of(game_id)}"' for game_id in dict.fromkeys(game_ids)]
    print("\n".join([f"episodes = {SUITE_EPISODES}", "", "[tasks]", *tasks]))
    print_next("write it to mine.toml, then: msgrpo eval random --suite mine.toml")


def _print_rules(games: list[Game], as_json: bool) -> None:
    from msgrpo_hub.evaluation.suites import hash_of

    if as_json:
        print_json([describe(game) | {"task_hash": hash_of(game.id), "boards": boards(game)} for game in games])
    for game in [] if as_json else games:
        print(f"{game.id}   task hash {hash_of(game.id)}\n{game.instructions}\n{', '.join(game.actions)}")
        print("\n".join([*game.rules, _boards_line(game)]) + "\n")
    print_next(f"msgrpo games {games[0].id} --suite > mine.toml")


def boards(game: Game) -> list[dict[str, Any]]:
    """The number of different boards among the first episodes of a split."""
    rows = []
    for split, count in SHOWN:
        seeds = tuple(episode_seed(game.id, split, index) for index in range(count))
        rows.append({"split": split, "episodes": count, "boards": distinct_boards(game.id, seeds)})
    return rows


def _boards_line(game: Game) -> str:
    if is_remote(game):
        return "Boards: not known here, since the rules run elsewhere; training, validation and test differ by their seeds alone."
    if not splits_of(game.id).are_apart:
        return "Boards: too few to divide, so training, validation and test share them."
    counts = ", ".join(f"{row['episodes']} {row['split']} episodes on {row['boards']}" for row in boards(game))
    return f"Boards: each belongs to training, validation or test; {counts}."


def _list_games(options: argparse.Namespace) -> None:
    games = all_games().values()
    if options.json:
        print_json([describe(game) for game in games])
    else:
        for game in games:
            print(
                f"{game.id:<27} {game.rows}×{game.columns}, {game.horizon} turns, rewards of a step in {list(game.reward_range)}"
            )
    further = f"Of others, and variants of ours: {', '.join(_by_sizes(FURTHER))}"
    print_text(textwrap.fill(further, 100, subsequent_indent="    ", break_on_hyphens=False), error=True)
    print_next("msgrpo play FrozenLake-NotSlippery-v1 --player human")


def _by_sizes(ids: Iterable[str]) -> list[str]:
    """Ids, where those that differ in the size of the board alone are one.

    >>> _by_sizes(["Lake-2x2-v1", "Lake-3x3-v1", "Taxi-v1"])
    ['Lake-2x2-v1 … Lake-3x3-v1', 'Taxi-v1']
    """
    groups = [list(of_sizes) for _, of_sizes in groupby(ids, lambda name: re.sub(r"-\d+x\d+-", "-", name))]
    return [group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}" for group in groups]


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
