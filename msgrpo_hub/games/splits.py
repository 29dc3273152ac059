"""Splits: every board belongs to training, validation or test by a hash of the board itself.

The hash covers what stands on the board at the start, and is the same for mirrored and turned boards and in every game that
shares the board. No list and no setting has a part in it, so nothing that is trained on can be tested on. A board that carries
more than a tenth of a game's probability would be most of a split; a game declares it as common, and it belongs to training.
"""

from __future__ import annotations

import hashlib
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Number, Seed, check
from msgrpo_hub.games.game import Game, is_remote
from msgrpo_hub.games.registry import make_game
from msgrpo_hub.games.seeds import Split, candidate_seed, stream
from msgrpo_hub.games.variants import base_game

SHARES: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
"""Split → its share of the hashes. With a tenth for the test, one lake would be 42 % of Slippery's test; so it is 22 %."""

_PROBED = 200
"""Boards that are drawn to see whether every split has some. One of a fifth of the boards is missed with chance 1e-19."""
_MOST_TRIES = 10_000


def board_of(game: Game, state: Any) -> str:
    """What identifies the board of an initial state: the game's own `board`, else its observation.

    >>> lake = make_game("FrozenLake-NotSlippery-v1")
    >>> board_of(lake, lake.initial_state(stream(7, "initial_state"))).split()
    ['...@', '....', '....', 'G.O.']
    """
    plain = base_game(game)
    return str(getattr(plain, "board", plain.observe)(state))


def split_of(game: Game, state: Any) -> Split:
    """The split that the board of an initial state belongs to."""
    board = board_of(game, state)
    if board in getattr(base_game(game), "common_boards", ()):
        return "train"
    place = int.from_bytes(hashlib.sha256(board.encode()).digest()[:8], "big") / 2**64
    if place < SHARES["train"]:
        return "train"
    return "validation" if place < SHARES["train"] + SHARES["validation"] else "test"


class Splits:
    """The boards of one game, divided into splits."""

    def __init__(self, game: Game) -> None:
        self.game = game

    @cached_property
    def are_apart(self) -> bool:
        """Whether every split has boards; a game with a single board, or very few, shares them between all splits.

        So does a game whose rules run elsewhere: its splits have seeds of their own, and their boards are not known here.
        """
        if is_remote(self.game):
            return False
        missing = set(SHARES)
        for number in range(_PROBED):
            missing.discard(split_of(self.game, self.game.initial_state(stream(number, "initial_state"))))
            if not missing:
                return True
        return False

    def seed(self, split: Split, index: int, run: int = 0) -> int:
        """The seed of an episode of a split: the first of its sequence of seeds whose board belongs there."""
        if not self.are_apart:
            return candidate_seed(self.game.id, split, index, run)
        for attempt in range(_MOST_TRIES):
            seed = candidate_seed(self.game.id, split, index, run, attempt)
            if split_of(self.game, self.game.initial_state(stream(seed, "initial_state"))) == split:
                return seed
        raise self._too_rare(split)

    def initial_state(self, split: Split, rng: np.random.Generator) -> Any:
        """Samples s0 from a split: draws until the board belongs there."""
        for _ in range(_MOST_TRIES):
            state = self.game.initial_state(rng)
            if not self.are_apart or split_of(self.game, state) == split:
                return state
        raise self._too_rare(split)

    def _too_rare(self, split: Split) -> UserError:
        return UserError(
            f"{self.game.id} has hardly any board of the split {split} ({_MOST_TRIES:,} draws gave none): "
            "expected more boards of about equal chance, or a single one"
        )


def episode_seed(game_id: str, split: Split, index: int, run: int = 0) -> int:
    """A 63-bit seed for episode `index` of a split, whose board belongs to that split; `run` separates training runs.

    Variants share their game's seeds. If a game has too few boards to divide, all splits share them.

    Raises:
        UserError: for an unknown game or split, a number below 0, or a game with hardly any board of that split.

    >>> episode_seed("FrozenLake-NotSlippery-v1", "test", 0) == episode_seed("FrozenLake-NotSlippery-v1", "train", 0)
    False
    """
    for name, value, hint in (("game_id", game_id, str), ("split", split, Split), ("index", index, Number), ("run", run, Seed)):
        check(name, value, hint)
    return _episode_seed(game_id, split, index, run)


@lru_cache(maxsize=2**17)
def _episode_seed(game_id: str, split: Split, index: int, run: int) -> int:
    return splits_of(game_id).seed(split, index, run)


def splits_of(game_id: str) -> Splits:
    """The boards of a registered game, divided; those of a variant are its game's."""
    return _splits(game_id.partition(":")[0])


@cache
def _splits(game_id: str) -> Splits:
    return Splits(make_game(game_id))


@lru_cache(maxsize=64)
def distinct_boards(game_id: str, seeds: tuple[int, ...]) -> int:
    """How many boards some episodes of a game are played on; at most, where its rules run elsewhere."""
    game = make_game(game_id)
    if is_remote(game):
        return len(set(seeds))
    return len({board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds})
