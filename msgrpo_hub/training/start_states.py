"""The initial states of a run: of its updates, of validation and of the test. No board is in two of these (`games.splits`)."""

from __future__ import annotations

from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.curriculum import game_of_group, parse_games

Start = tuple[str, int]
"""(game id, seed of the initial state)."""


class StartStates:
    """The games of a run, and the seeds of their initial states: of each update, of validation and of the test."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.games: dict[str, Game] = {name: make_game(name) for name in parse_games(config.game)}

    def validation(self, game: str) -> list[int]:
        """The seeds of a game's validation episodes."""
        return [episode_seed(game, "validation", index) for index in range(self.config.eval_episodes)]

    def test(self, game: str) -> list[int]:
        """The seeds of a game's test episodes."""
        return [episode_seed(game, "test", index) for index in range(self.config.test_episodes)]

    def of_update(self, index: int) -> list[Start]:
        """The starts of the groups of update `index`: a function of (games, run seed, index) alone."""
        first = (index - 1) * self.config.groups
        return [self._start(number) for number in range(first, first + self.config.groups)]

    def _start(self, number: int) -> Start:
        game = game_of_group(self.config.game, number)
        return game, episode_seed(game, "train", number, self.config.seed)
