"""The registered games: versioned ids. A changed rule gets a new version; ids never change their meaning."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import check, imported, names_code
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game
from msgrpo_hub.games.lake_maps import Maps
from msgrpo_hub.games.snake import APPLE, Item, Snake
from msgrpo_hub.games.table_game import CliffWalking, TableGame, Taxi
from msgrpo_hub.games.variants import make_variant

GROUP = "msgrpo_hub.games"
"""The entry point group through which other packages add games: the game's id, and the game or its class."""

_POISON = replace(APPLE, reward=-1.0)
_BANANA = Item("banana", "B", 3, 1.0)
_FIRE = Item("fire", "F", 3, -1.0, grows=False)

_GAMES: list[Game] = [
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
]

_OTHER_WORDS: list[FrozenLake] = [
    FrozenLake("FrozenLake-Sought-v1", task="Find the way to the goal and stay out of the holes."),
    FrozenLake("FrozenLake-Untold-v1", task=" ".join(["The weather is nice today."] * 3)),
    FrozenLake("FrozenLake-Trap-v1", goal_reward=-1.0, task="The goal is a trap: stay on the ice, and do not fall into a hole."),
    FrozenLake("FrozenLake-KeepAway-v1", goal_reward=-1.0, task="Keep away from the goal and from every hole."),
]
"""The lake in other words, with words that say nothing, and with a goal to avoid: to train on beside the lake itself."""

_4x4 = Maps(rows=("SFFF", "FHFH", "FFFH", "HFFG"))
_8x8 = Maps(rows=("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"))
_ENDS = Maps(random_ends=True)
_RLLM = Maps(random_ends=True, ice=(0.6, 0.85), depth=8)
_DEEP, _SIZES = replace(_RLLM, depth=50), range(2, 10)

_PUBLISHED: list[FrozenLake] = [
    FrozenLake("FrozenLake-Gymnasium-4x4-v1", slippery=True, horizon=100, maps=_4x4),
    FrozenLake("FrozenLake-Gymnasium-8x8-v1", size=8, slippery=True, horizon=200, maps=_8x8),
    FrozenLake("FrozenLake-RAGEN1-v1", slippery=True, horizon=10, maps=_ENDS),
    FrozenLake("FrozenLake-RAGEN2-v1", frozen_probability=0.9, horizon=10, maps=_ENDS),
    FrozenLake("FrozenLake-RAGEN2-Slippery-v1", frozen_probability=0.9, slippery=True, success_rate=0.8, horizon=10, maps=_ENDS),
    FrozenLake("FrozenLake-ROLL-v1", horizon=10, maps=_ENDS),
    FrozenLake("FrozenLake-VAGEN-v1", horizon=25, maps=_ENDS),
    FrozenLake("FrozenLake-TextArena-v1", horizon=100, maps=Maps(holes=3)),
    FrozenLake("FrozenLake-TextArena-Hardcore-v1", size=5, horizon=100, maps=Maps(holes=6)),
    *(FrozenLake(f"FrozenLake-rLLM-{n}x{n}-v1", size=n, horizon=10, maps=_RLLM) for n in _SIZES),
    *(FrozenLake(f"FrozenLake-rLLM-Slippery-{n}x{n}-v1", size=n, slippery=True, horizon=10, maps=_RLLM) for n in _SIZES),
    *(FrozenLake(f"FrozenLake-rLLM-Cookbook-{n}x{n}-v1", size=n, horizon=2 * n, maps=_DEEP) for n in _SIZES),
]
"""Frozen Lake with the settings of other projects. The guide names their sources, and what their games have besides."""

GAMES: dict[str, Game] = {game.id: game for game in _GAMES}
"""Id → game, for the games that suites and tables use."""
LAKES: dict[str, FrozenLake] = {game.id: game for game in _PUBLISHED}
"""Id → published lake."""
TABLE_GAMES: dict[str, TableGame] = {
    game.id: game for game in (CliffWalking("CliffWalking-Gymnasium-v1", horizon=20), Taxi("Taxi-Gymnasium-v1", horizon=30))
}
"""Id → game of gymnasium's toy text. gymnasium ends Taxi after 200 turns and CliffWalking never; these leave time to win."""
FURTHER: dict[str, Game] = {**{game.id: game for game in _OTHER_WORDS}, **LAKES, **TABLE_GAMES}
"""Id → game that is in no suite."""
OWN: dict[str, Game] = {}
"""Id → game that `import_game` imported."""
TYPED: dict[str, str] = {}
"""Id of such a game → its `module:object`."""


def make_game(game_id: str) -> Game:
    """The game of an id, or of `ID:VARIANT` (see `variants.py`).

    Raises `UserError` for an unknown id, with the nearest one, and for a game of another package that cannot be used.

    >>> make_game("FrozenLake-NotSlippery-v1").horizon
    8
    """
    check("game_id", game_id, str)
    name, colon, variant = game_id.partition(":")
    game = GAMES.get(name) or FURTHER.get(name) or OWN.get(name)
    if game is None:
        points = entry_points(group=GROUP)
        if name not in points.names:
            raise unknown(
                "game",
                name,
                [*GAMES, *sorted(points.names)],
                "(`msgrpo games` lists all; add your own with --import module:object)",
                further=FURTHER,
            )
        try:
            loaded = points[name].load()
        except (ImportError, AttributeError) as error:
            where = points[name].value
            raise UserError(f"cannot import the game {name!r} ({where}: {error}): repair or uninstall its package") from error
        game = _checked(loaded() if isinstance(loaded, type) else loaded, f"the entry point {name!r}")
        if game.id != name:
            raise UserError(f"the game of the entry point {name!r} has the id {game.id!r}: expected equal names")
    return make_variant(game, variant) if colon else game


def _checked(game: object, source: str) -> Game:
    if not isinstance(game, Game):
        raise UserError(f"{source} is of type {type(game).__name__}: expected a msgrpo_hub.games.Game")
    if missing := [member for member in Game.__annotations__ if not hasattr(game, member)]:
        raise UserError(f"the game of {source} has no {missing[0]}: see msgrpo_hub.games.Game")
    return game


def import_game(name: str) -> str:
    """Imports a game `module:object` that was typed on this machine, and returns its id; any other name is returned unchanged.

    `make_game` then knows the id. Raises `UserError` if there is no such game, or if it has the id of a built-in one.
    """
    if not names_code(name):
        return name
    game = _checked(imported("game", name), repr(name))
    if game.id in GAMES | FURTHER or ":" in game.id:
        raise UserError(f"the game {name!r} has the id {game.id!r}: expected an id that no built-in game or variant has")
    OWN[game.id], TYPED[game.id] = game, name
    return game.id


def all_games() -> dict[str, Game]:
    """Id → game, for the registered games except `FURTHER`, then for the games of other packages."""
    return GAMES | {game_id: make_game(game_id) for game_id in sorted(entry_points(group=GROUP).names - GAMES.keys())}
