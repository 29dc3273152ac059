"""The names that visitors see. Programs and addresses use ids, which the page shows in small print."""

from __future__ import annotations

import json
import math
from functools import cache

import players

from msgrpo_hub.downloads.names import pocket_path

GAMES = {
    "FrozenLake-NotSlippery-v1": "Frozen Lake",
    "FrozenLake-Slippery-v1": "Frozen Lake, slippery",
    "FrozenLake-BigSlippery-v1": "Frozen Lake, large and slippery",
    "FrozenLake-NotSlippery20-v1": "Frozen Lake, with time to spare",
    "FrozenLake-Exactly8-v1": "Frozen Lake, goal on turn 8",
    "Snake-Solo-v1": "Snake, alone",
    "Snake-Standard-v1": "Snake, against another",
    "Snake-Short-v1": "Snake, against another, short",
    "Snake-DoubleApple-v1": "Snake, apples count double",
    "Snake-PoisonApple-v1": "Snake, poisoned apples",
    "Snake-Banana-v1": "Snake, bananas worth 10",
    "Snake-PoisonAppleBanana-v1": "Snake, poisoned apples and bananas",
    "Snake-Fire-v1": "Snake, fire",
    "Snake-DownHill-v1": "Snake, downhill",
}
"""Registered id → name; the games of a family are together."""

VARIANTS = {
    "reflected": "mirrored",
    "rotated": "turned",
    "compass": "North, South, East, West",
    "permuted-actions": "actions swap names",
    "other-symbols": "other symbols",
    "irrelevant-sentence": "one more sentence",
    "coordinates": "coordinates only",
    "grid": "grid only",
}
"""Variant → how it differs from its game."""

PLAYERS = {
    "lake": "trained on the lake",
    "lake-slippery": "trained on slippery ice",
    "lake-trap": "trained on a trap too",
    "snake": "trained on Snake",
    "snake-standard": "trained on two snakes",
    "pocket": "untrained",
    "optimal": "optimal play",
    "planner": "planner",
    "greedy": "greedy",
    "random-safe": "random, but careful",
    "random": "random",
}
"""Built-in player → name, without the size of a model."""


def game(game_id: str) -> str:
    """The name of a game, or its id if it has none.

    >>> game("Snake-Solo-v1:reflected"), game("Taxi-Gymnasium-v1")
    ('Snake, alone – mirrored', 'Taxi-Gymnasium-v1')
    """
    base, _, variant = game_id.partition(":")
    name = GAMES.get(base, base)
    return f"{name} – {VARIANTS.get(variant, variant)}" if variant else name


def player(name: str) -> str:
    """The name of a player with the size of a built-in model; its id if it is from the Hub."""
    title = PLAYERS.get(name, name)
    return f"{title} ({parameters() / 1e6:.1f} M)" if name == "pocket" or name in players.ADAPTERS else title


@cache
def parameters() -> int:
    """Number of parameters of the built-in base, from the header of its weights."""
    with (pocket_path() / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def groups() -> dict[str, list[str]]:
    """Heading → ids of the games that the lists offer, in the order of `GAMES`, each family before its variants."""
    found: dict[str, list[str]] = {}
    order = list(GAMES)
    for each in sorted(players.GAME_IDS, key=lambda name: order.index(name.partition(":")[0])):
        family = next((name for name in ("Frozen Lake", "Snake") if game(each).startswith(name)), "Other games")
        found.setdefault(f"{family}, shown or told differently" if ":" in each else family, []).append(each)
    return dict(sorted(found.items(), key=lambda group: (group[0] == "Other games", group[0])))
