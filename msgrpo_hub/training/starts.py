"""The games of a run and their initial states. No board is in two of the splits train, validation and test."""

from __future__ import annotations

from functools import cache

from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import Game, episode_seed, make_game

Start = tuple[str, int]
"""(game id, seed of the initial state)."""


class StartStates:
    """The games of a run and the seeds of their initial states.

    Args:
        games: one game or several, as `parse_games` reads them.
        seed: seed of the run.
        groups: groups per update.
        validation: number of validation episodes.
        test: number of test episodes.
    """

    def __init__(self, games: str, *, seed: int = 0, groups: int = 1, validation: int = 0, test: int = 0) -> None:
        self.games: dict[str, Game] = {name: make_game(name) for name in parse_games(games)}
        self.seed, self.groups, self.episodes = seed, groups, {"validation": validation, "test": test}
        self.order = dealing_order(games)

    def of_update(self, index: int) -> list[Start]:
        """The starts of the groups of update `index`, from 1."""
        numbers = range((index - 1) * self.groups, index * self.groups)
        games = [(self.order[number % len(self.order)], number) for number in numbers]
        return [(game, episode_seed(game, "train", number, self.seed)) for game, number in games]

    def validation(self, game: str) -> list[int]:
        """The seeds of a game's validation episodes."""
        return [episode_seed(game, "validation", index) for index in range(self.episodes["validation"])]

    def test(self, game: str) -> list[int]:
        """The seeds of a game's test episodes."""
        return [episode_seed(game, "test", index) for index in range(self.episodes["test"])]


@cache
def parse_games(text: str) -> dict[str, int]:
    """`A,B` or `A=3,B=1` → game id → weight, a whole number; 1 by default.

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
    """The games of successive groups over one round, spread as evenly as the weights allow.

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
