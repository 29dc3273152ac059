"""Which initial states a run trains on: never those that it is evaluated on."""

from __future__ import annotations

from functools import cached_property

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, episode_seed, make_game, stream
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.curriculum import game_of_group, parse_games

_TRIES = 1000

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

    def observation_of(self, game: str, seed: int) -> str:
        """What the initial state of a seed looks like."""
        rules = self.games[game]
        return rules.observe(rules.initial_state(stream(seed, "initial_state")))

    @cached_property
    def held_out(self) -> dict[str, frozenset[str]]:
        """Per game, the boards that training must not start from. Splits have different seeds, but small boards recur."""
        if not self.config.exclude_test_starts:
            return dict.fromkeys(self.games, frozenset())
        return {
            name: frozenset(self.observation_of(name, seed) for seed in [*self.validation(name), *self.test(name)])
            for name in self.games
        }

    def of_update(self, index: int) -> list[Start]:
        """The starts of the groups of update `index`: a function of (games, run seed, index) alone."""
        count = self.config.groups
        return [self._start((index - 1) * count + group) for group in range(count)]

    def _start(self, number: int) -> Start:
        game = game_of_group(self.config.game, number)
        for attempt in range(_TRIES):
            seed = episode_seed(game, "train", number * _TRIES + attempt, self.config.seed)
            if self.observation_of(game, seed) not in self.held_out[game]:
                return game, seed
        raise UserError(
            f"{game} has hardly any start that is not held out for evaluation: "
            "lower --test-episodes, or allow them with --no-exclude-test-starts"
        )
