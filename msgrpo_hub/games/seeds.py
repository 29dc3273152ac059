"""Seeds, random streams, and the splits of boards into training, validation and test.

A seed is a hash of (game id, split, index, run, attempt), so no two games and no two splits share one. Independent random streams
derive from a seed. A group shares the stream of the initial state; each member has its own streams of dynamics and sampling.

The split of a board is a hash of the initial board itself. The hash is equal for mirrored and turned boards, and in every game
that has the board, so nothing that a model trains on is in a test. A board with more than a tenth of a game's probability would
be most of a split: the game declares it as common, and it belongs to training.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, get_args

import numpy as np

from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Number, Seed, checked
from msgrpo_hub.games.game import Game, is_remote
from msgrpo_hub.games.registry import make_game
from msgrpo_hub.games.variants import base_game

Split = Literal["train", "validation", "test"]
Purpose = Literal["initial_state", "dynamics", "sampling", "drawing", "dropout", "sft"]
_PURPOSES: tuple[Purpose, ...] = get_args(Purpose)

SHARES: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
"""Split → its share of the hashes."""

_PROBED = 200
"""Boards sampled to see whether every split has some. A split with a fifth of the boards is missed with probability 1e-19."""
_MOST_TRIES = 10_000


def stream(seed: int, purpose: Purpose, *keys: int) -> np.random.Generator:
    """The random stream of one purpose, and of further keys such as the member of a group; independent of all others."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _PURPOSES.index(purpose), *keys))))


def board_of(game: Game, state: Any) -> str:
    """The text that identifies the board of an initial state: the game's own `board`, else its observation.

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


@dataclass(eq=False)
class Splits:
    """The boards of one game, divided into splits."""

    game: Game
    _seeds: dict[tuple[Split, int, int], int] = field(default_factory=dict)

    @cached_property
    def are_apart(self) -> bool:
        """Whether every split has boards. If a game has very few, or runs on a server, all splits share them."""
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
        if (split, index, run) in self._seeds:
            return self._seeds[split, index, run]
        game_id = self.game.id.partition(":")[0]
        for attempt in range(_MOST_TRIES):
            name = f"{game_id}/{split}/{index}/{run}" + (f"/{attempt}" if attempt else "")
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
            if not self.are_apart or split_of(self.game, self.game.initial_state(stream(seed, "initial_state"))) == split:
                return self._seeds.setdefault((split, index, run), seed)
        raise self._too_rare(split)

    def initial_state(self, split: Split, rng: np.random.Generator) -> Any:
        """Samples s0 from a split: samples until the board belongs there."""
        for _ in range(_MOST_TRIES):
            state = self.game.initial_state(rng)
            if not self.are_apart or split_of(self.game, state) == split:
                return state
        raise self._too_rare(split)

    def _too_rare(self, split: Split) -> UserError:
        return UserError(
            f"{self.game.id} has hardly any board of the split {split} (none in {_MOST_TRIES:,} samples): "
            "expected more boards of about equal probability, or a single one"
        )


@cache
def splits_of(game_id: str) -> Splits:
    """The boards of a registered game, divided; a variant shares the boards of its game."""
    own = game_id.partition(":")[0]
    return Splits(make_game(own)) if own == game_id else splits_of(own)


@checked
def episode_seed(game_id: str, split: Split, index: Number, run: Seed = 0) -> int:
    """A 63-bit seed for episode `index` of a split, whose board belongs to that split; `run` separates training runs.

    Variants share their game's seeds. If a game has too few boards to divide, all splits share them. Raises `UserError` for an
    unknown game or split, a number below 0, or a game with hardly any board of that split.

    >>> episode_seed("FrozenLake-NotSlippery-v1", "test", 0) == episode_seed("FrozenLake-NotSlippery-v1", "train", 0)
    False
    """
    return splits_of(game_id).seed(split, index, run)


@lru_cache(maxsize=64)
def distinct_boards(game_id: str, seeds: tuple[int, ...]) -> int:
    """The number of different boards among episodes of a game; an upper bound if its rules run on a server."""
    game = make_game(game_id)
    if is_remote(game):
        return len(set(seeds))
    return len({board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds})
