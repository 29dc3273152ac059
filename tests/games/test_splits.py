"""A board has one split in all games, variants and settings; common boards belong to training."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, board_of, episode_seed, make_game, stream
from msgrpo_hub.games.board import canonical
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.registry import FURTHER
from msgrpo_hub.games.seeds import SHARES, Splits, split_of, splits_of

LAKE = "FrozenLake-NotSlippery-v1"


def start(game_id: str, seed: int) -> Any:
    return make_game(game_id).initial_state(stream(seed, "initial_state"))


def test_the_eight_images_of_a_board_by_hand_are_one_board_and_a_ninth_is_not() -> None:
    turned = [["ab", "cd"], ["ca", "db"], ["dc", "ba"], ["bd", "ac"]]
    images = [*turned, *([row[::-1] for row in rows] for rows in turned)]
    assert {canonical(rows) for rows in images} == {"ab\ncd"}
    assert canonical(["ab", "dc"]) != "ab\ncd"
    assert canonical(["abc", "def"]) == canonical(["da", "eb", "fc"]) == canonical(["fed", "cba"])


def test_a_variant_and_every_id_with_the_same_boards_have_the_same_splits() -> None:
    lakes = [LAKE, "FrozenLake-NotSlippery20-v1", "FrozenLake-Slippery-v1", "FrozenLake-Exactly8-v1"]
    snakes = ["Snake-Standard-v1", "Snake-Short-v1", "Snake-PoisonApple-v1", "Snake-DoubleApple-v1", "Snake-DownHill-v1"]
    families = [lakes + [f"{LAKE}:{name}" for name in VARIANTS], snakes + [f"Snake-Standard-v1:{name}" for name in VARIANTS]]
    for family, seed in product(families, range(30)):
        state = start(family[0], seed)
        assert len({(board_of(make_game(i), state), split_of(make_game(i), state)) for i in family}) == 1, (family, seed)


def test_no_board_is_in_two_splits_whatever_the_ids() -> None:
    games = [game for game in GAMES if game.startswith("FrozenLake")]  # the boards of Snake hardly ever repeat
    found = {
        split: {g: {board_of(GAMES[g], start(g, episode_seed(g, split, i, i % 2))) for i in range(60)} for g in games}
        for split in SHARES
    }
    train, validation, test = (set().union(*boards.values()) for boards in found.values())
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(found["test"]["FrozenLake-NotSlippery20-v1"] & found["test"][LAKE]) > 5  # ids do share boards


@pytest.mark.parametrize("game_id", [*GAMES, *FURTHER])
def test_the_seeds_of_every_id_have_boards_of_their_split_or_all_splits_share_them(game_id: str) -> None:
    game, few = make_game(game_id), any(name in game_id for name in ("Lake-Gymnasium", "Cliff", "2x2"))
    assert splits_of(game_id).are_apart != few
    for split in () if few else SHARES:
        assert {split_of(game, start(game_id, episode_seed(game_id, split, index))) for index in range(15)} == {split}


@pytest.mark.parametrize("game_id", GAMES)
def test_every_board_above_a_tenth_of_a_game_is_common(game_id: str) -> None:
    game = GAMES[game_id]
    found = Counter(board_of(game, start(game_id, seed)) for seed in range(500))
    assert {board for board, count in found.items() if count > 50} <= getattr(game, "common_boards", frozenset())


class OneLake(FrozenLake):
    def initial_state(self, rng: np.random.Generator) -> LakeState:  # noqa: ARG002
        return LakeState(self.size, ((1, 1),))


def test_a_game_with_a_single_board_shares_it_between_all_splits() -> None:
    splits = Splits(OneLake("One-v1"))
    assert not splits.are_apart
    assert len({splits.seed(split, 0) for split in SHARES}) == 3
    assert {splits.initial_state(split, np.random.default_rng(0)) for split in SHARES} == {LakeState(4, ((1, 1),))}


def test_a_split_without_boards_raises_instead_of_searching_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = Splits(OneLake("One-v1"))
    monkeypatch.setattr("msgrpo_hub.games.seeds._MOST_TRIES", 20)
    splits.are_apart = True
    other = next(split for split in SHARES if split != split_of(splits.game, LakeState(4, ((1, 1),))))
    with pytest.raises(UserError, match=f"One-v1 has hardly any board of the split {other}"):
        splits.seed(other, 0)
    with pytest.raises(UserError, match="hardly any board"):
        splits.initial_state(other, np.random.default_rng(0))
