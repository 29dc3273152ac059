"""Curricula: the groups of a run dealt out over one game or several, by weights."""

from __future__ import annotations

from functools import cache

from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import make_game


@cache
def parse_games(text: str) -> dict[str, int]:
    """`A,B` or `A=3,B=1` → game id → weight, a whole number; 1 if none is given.

    Raises:
        UserError: for an unknown game, a game named twice, or a weight that is not a whole number of at least 1.

    >>> parse_games("FrozenLake-NotSlippery-v1=3,FrozenLake-Slippery-v1")
    {'FrozenLake-NotSlippery-v1': 3, 'FrozenLake-Slippery-v1': 1}
    """
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, given, weight = part.strip().partition("=")
        if name in weights:
            raise UserError(f"game = {text!r} names {name} twice: expected each game once, with a weight as in {name}=2")
        if given and not (weight.isascii() and weight.isdigit() and len(weight) <= 4 and 1 <= int(weight) <= 1000):
            raise UserError(f"game = {shown(text)}: expected weights from 1 to 1000, as in {name}=2")
        weights[make_game(name).id] = int(weight or 1)
    return weights


@cache
def dealing_order(text: str) -> tuple[str, ...]:
    """The games in the order in which groups are dealt to them, over one round; spread as evenly as the weights allow.

    >>> dealing_order("Snake-Solo-v1=3,Snake-Short-v1=1")
    ('Snake-Solo-v1', 'Snake-Solo-v1', 'Snake-Short-v1', 'Snake-Solo-v1')
    """
    weights = parse_games(text)
    total, credit, order = sum(weights.values()), dict.fromkeys(weights, 0), []
    for _ in range(total):  # smooth weighted round robin
        credit = {name: value + weights[name] for name, value in credit.items()}
        chosen = max(credit, key=lambda name: credit[name])
        credit[chosen] -= total
        order.append(chosen)
    return tuple(order)


def game_of_group(text: str, number: int) -> str:
    """The id of the game that group `number` of a run plays, from 0."""
    order = dealing_order(text)
    return order[number % len(order)]
