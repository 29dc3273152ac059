"""Which initial states a run trains on: never those that it is evaluated on."""

from __future__ import annotations

from functools import cached_property

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.training.config import TrainConfig

_TRIES = 1000


class StartStates:
    """The seeds of the initial states: of each update, of the validation episodes and of the test episodes."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.game = make_game(config.game)
        self.validation = [episode_seed(config.game, "validation", index) for index in range(config.eval_episodes)]
        self.test = [episode_seed(config.game, "test", index) for index in range(config.test_episodes)]

    def observation_of(self, seed: int) -> str:
        """What the initial state of a seed looks like."""
        return self.game.observe(self.game.initial_state(stream(seed, "initial_state")))

    @cached_property
    def held_out(self) -> frozenset[str]:
        """The boards that training must not start from. Splits have different seeds, but small boards recur by chance."""
        if not self.config.exclude_test_starts:
            return frozenset()
        return frozenset(self.observation_of(seed) for seed in [*self.validation, *self.test])

    def of_update(self, index: int) -> list[int]:
        """The seeds of the groups of update `index`: a function of (game, run seed, index) alone."""
        count = self.config.groups
        return [self._start((index - 1) * count + group) for group in range(count)]

    def _start(self, number: int) -> int:
        for attempt in range(_TRIES):
            seed = episode_seed(self.config.game, "train", number * _TRIES + attempt, self.config.seed)
            if self.observation_of(seed) not in self.held_out:
                return seed
        raise UserError(
            f"{self.config.game} has hardly any start that is not held out for evaluation: "
            "lower --test-episodes, or allow them with --no-exclude-test-starts"
        )
