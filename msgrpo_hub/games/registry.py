"""The registered games: versioned ids. A changed rule gets a new version; ids never change their meaning."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import check
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game
from msgrpo_hub.games.published_lakes import LAKES
from msgrpo_hub.games.snake import APPLE, Item, Snake
from msgrpo_hub.games.table_game import TableGame
from msgrpo_hub.games.toy_text import CliffWalking, Taxi
from msgrpo_hub.games.variants import make_variant

GROUP = "msgrpo_hub.games"
"""The entry point group through which other packages add games: the game's id, and the game or its class."""

_POISON = replace(APPLE, reward=-1.0)
_BANANA = Item("banana", "B", 3, 1.0)
_FIRE = Item("fire", "F", 3, -1.0, grows=False)

GAMES: dict[str, Game] = {
    game.id: game
    for game in (
        FrozenLake("FrozenLake-NotSlippery-v1"),
        FrozenLake("FrozenLake-NotSlippery20-v1", horizon=20),
        FrozenLake("FrozenLake-Slippery-v1", frozen_probability=0.9, slippery=True, horizon=15),
        FrozenLake("FrozenLake-BigSlippery-v1", size=6, frozen_probability=0.9, slippery=True, horizon=40),
        FrozenLake("FrozenLake-Exactly8-v1", exactly=True),
        Snake("Snake-Standard-v1"),
        Snake("Snake-Short-v1", horizon=8),
        Snake("Snake-Solo-v1", size=6, items=(replace(APPLE, count=3),), has_opponent=False, death_reward=-1.0),
        Snake("Snake-PoisonApple-v1", items=(_POISON,)),
        Snake("Snake-DoubleApple-v1", items=(replace(APPLE, reward=2.0),)),
        Snake("Snake-Banana-v1", items=(replace(APPLE, count=3), replace(_BANANA, reward=10.0))),
        Snake("Snake-PoisonAppleBanana-v1", items=(replace(_POISON, count=3), _BANANA)),
        Snake("Snake-Fire-v1", items=(APPLE, _FIRE)),
        Snake("Snake-DownHill-v1", down_hill=True),
    )
}

TOY_TEXT: dict[str, TableGame] = {
    game.id: game
    for game in (
        TableGame("CliffWalking-Gymnasium-v1", CliffWalking(), horizon=20),
        TableGame("Taxi-Gymnasium-v1", Taxi(), horizon=30),
    )
}
"""gymnasium ends Taxi after 200 turns and CliffWalking never; these horizons leave time for optimal play."""

_TOLD: dict[str, tuple[float, str]] = {
    "FrozenLake-Sought-v1": (1.0, "Find the way to the goal and stay out of the holes."),
    "FrozenLake-Untold-v1": (1.0, " ".join(["The weather is nice today."] * 3)),
    "FrozenLake-Trap-v1": (-1.0, "The goal is a trap: stay on the ice, and do not fall into a hole."),
    "FrozenLake-KeepAway-v1": (-1.0, "Keep away from the goal and from every hole."),
}
TOLD_OTHERWISE: dict[str, Game] = {
    name: FrozenLake(name, goal_reward=reward, task=task) for name, (reward, task) in _TOLD.items()
}
"""The dry lake in other words, with words that say nothing, and with a goal to avoid: to train on beside it."""

FURTHER: dict[str, Game] = {**TOLD_OTHERWISE, **LAKES, **TOY_TEXT}
"""Id → game that stands in no suite: the lake told otherwise, with others' settings, and environments of gymnasium."""


def make_game(game_id: str) -> Game:
    """The game of an id, or of `ID:VARIANT` (see `variants.py`). Raises `UserError` for an unknown id, naming the nearest one.

    >>> make_game("FrozenLake-NotSlippery-v1").horizon
    8
    """
    check("game_id", game_id, str)
    name, colon, variant = game_id.partition(":")
    game = GAMES.get(name) or FURTHER.get(name) or _game_of_another_package(name)
    return make_variant(game, variant) if colon else game


def game_ids() -> list[str]:
    """The registered ids but `FURTHER`, then those of other packages, without loading their games."""
    return [*GAMES, *sorted(entry_points(group=GROUP).names - GAMES.keys())]


def all_games() -> dict[str, Game]:
    """Id → game: the registered ones, and those of other packages."""
    return {game_id: make_game(game_id) for game_id in game_ids()}


def _game_of_another_package(name: str) -> Game:
    """The game of an entry point, which must have the id that it is registered under."""
    points = entry_points(group=GROUP)
    if name not in points.names:
        raise unknown("game", name, [*GAMES, *sorted(points.names)], "(`msgrpo games` lists all)", further=FURTHER)
    try:
        loaded = points[name].load()
    except (ImportError, AttributeError) as error:
        where = points[name].value
        raise UserError(f"cannot import the game {name!r} ({where}: {error}): repair or uninstall its package") from error
    game: Game = loaded() if isinstance(loaded, type) else loaded
    if game.id != name:
        raise UserError(f"the game of the entry point {name!r} has the id {game.id!r}: expected equal names")
    return game
