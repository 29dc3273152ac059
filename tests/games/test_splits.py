"""A board has one split, whatever game, variant, setting or seed it comes from; common boards belong to training."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest

import msgrpo_hub.games.environment
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, board_of, episode_seed, make_game, stream
from msgrpo_hub.games.board import canonical
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.seeds import candidate_seed
from msgrpo_hub.games.snake import SnakeState
from msgrpo_hub.games.splits import SHARES, Splits, split_of, splits_of

LAKE = "FrozenLake-NotSlippery-v1"


def start(game_id: str, seed: int) -> Any:
    return make_game(game_id).initial_state(stream(seed, "initial_state"))


def board(game_id: str, seed: int) -> str:
    return board_of(make_game(game_id), start(game_id, seed))


# ---- what a board is


def test_the_eight_images_of_a_board_by_hand_are_one_board_and_a_ninth_is_not() -> None:
    turned = [["ab", "cd"], ["ca", "db"], ["dc", "ba"], ["bd", "ac"]]
    images = [*turned, *([row[::-1] for row in rows] for rows in turned)]
    assert {canonical(rows) for rows in images} == {"ab\ncd"}
    assert canonical(["ab", "dc"]) != "ab\ncd"
    assert canonical(["abc", "def"]) == canonical(["da", "eb", "fc"]) == canonical(["fed", "cba"])


def test_a_lake_and_its_mirror_image_have_one_split_and_the_way_back_is_another_lake() -> None:
    """Mirrored on the diagonal, start and goal keep their places; turned by half, they change places with each other."""
    lake, holes = GAMES[LAKE], ((0, 1), (2, 1))
    mirrored = tuple(sorted((column, row) for row, column in holes))
    turned = tuple(sorted((3 - row, 3 - column) for row, column in holes))
    assert board_of(lake, LakeState(4, holes)) == board_of(lake, LakeState(4, mirrored))
    assert board_of(lake, LakeState(4, holes)) != board_of(lake, LakeState(4, turned))


def test_a_snake_board_has_one_split_in_all_eight_images() -> None:
    game = GAMES["Snake-Standard-v1"]
    snake, opponent, apples = (0, 1), (5, 2), ((2, 7), (3, 3), (8, 9), (9, 0), (9, 1))

    def image(flip: bool, turns: int, cell: tuple[int, int]) -> tuple[int, int]:
        row, column = cell
        column = 9 - column if flip else column
        for _ in range(turns):
            row, column = 9 - column, row
        return row, column

    def state(flip: bool, turns: int) -> SnakeState:
        items = tuple(sorted(image(flip, turns, cell) for cell in apples))
        return SnakeState((image(flip, turns, snake),), (image(flip, turns, opponent),), (items,))

    states = [state(flip, turns) for flip, turns in product((False, True), range(4))]
    assert len(set(states)) == 8
    assert len({board_of(game, state) for state in states}) == 1
    swapped = replace(states[0], snake=(opponent,), opponent=(snake,))
    assert board_of(game, swapped) != board_of(game, states[0])


def test_a_variant_and_every_id_with_the_same_boards_have_the_same_splits() -> None:
    lakes = [LAKE, "FrozenLake-NotSlippery20-v1", "FrozenLake-Slippery-v1", "FrozenLake-Exactly8-v1"]
    snakes = ["Snake-Standard-v1", "Snake-Short-v1", "Snake-PoisonApple-v1", "Snake-DoubleApple-v1", "Snake-DownHill-v1"]
    families = [lakes + [f"{LAKE}:{name}" for name in VARIANTS], snakes + [f"Snake-Standard-v1:{name}" for name in VARIANTS]]
    for family in families:
        for seed in range(30):
            state = start(family[0], seed)
            found = {(board_of(make_game(game_id), state), split_of(make_game(game_id), state)) for game_id in family}
            assert len(found) == 1, (family, seed)


# ---- no leak: every split of every id, against every other id


def test_no_board_is_in_two_splits_whatever_the_ids() -> None:
    """The trap: training on NotSlippery20 showed 63 of the 200 test boards of NotSlippery."""
    games = [game for game in GAMES if game.startswith("FrozenLake")]  # the boards of Snake hardly ever come again
    found: dict[str, dict[str, set[str]]] = {
        split: {game: {board(game, episode_seed(game, split, i, i % 2)) for i in range(60)} for game in games}  # type: ignore[arg-type]
        for split in SHARES
    }
    train, validation, test = (set().union(*boards.values()) for boards in found.values())
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(found["test"]["FrozenLake-NotSlippery20-v1"] & found["test"][LAKE]) > 5  # ids do share boards


@pytest.mark.parametrize("game_id", GAMES)
def test_the_seeds_of_every_id_have_boards_of_their_split(game_id: str) -> None:
    game = GAMES[game_id]
    for split in SHARES:
        found = {split_of(game, start(game_id, episode_seed(game_id, split, index))) for index in range(15)}
        assert found == {split}


def test_the_seeds_of_before_would_leak_so_the_test_above_can_fail() -> None:
    before = {split: {board(LAKE, candidate_seed(LAKE, split, i)) for i in range(200)} for split in ("train", "test")}  # type: ignore[arg-type]
    assert len(before["train"] & before["test"]) > 20


def test_splits_have_about_the_shares_that_are_stated() -> None:
    game = GAMES["Snake-Standard-v1"]
    found = Counter(split_of(game, start(game.id, seed)) for seed in range(2000))
    assert {split: pytest.approx(count / 2000, abs=0.04) for split, count in found.items()} == SHARES


def test_an_episode_has_the_first_seed_of_its_sequence_whose_board_fits() -> None:
    game = GAMES[LAKE]
    for index in range(20):
        candidates = [candidate_seed(LAKE, "test", index, 0, attempt) for attempt in range(100)]
        fitting = [seed for seed in candidates if split_of(game, start(LAKE, seed)) == "test"]
        assert episode_seed(LAKE, "test", index) == fitting[0]


# ---- boards that are most of a game


@pytest.mark.parametrize("game_id", GAMES)
def test_every_board_above_a_tenth_of_a_game_is_declared_as_common(game_id: str) -> None:
    game = GAMES[game_id]
    found = Counter(board(game_id, seed) for seed in range(500))
    common: frozenset[str] = getattr(game, "common_boards", frozenset())
    assert {board for board, count in found.items() if count > 50} <= common


def test_the_lake_without_holes_is_a_quarter_of_slippery_and_a_training_board_of_every_lake() -> None:
    empty = LakeState(4, ())
    slippery = GAMES["FrozenLake-Slippery-v1"]
    found = [start(slippery.id, seed) == empty for seed in range(1000)]
    assert np.mean(found) == pytest.approx(0.9**14 / 0.9717, abs=0.04)  # 0.9717: the goal of a random lake can be reached
    lakes = [game for game in GAMES.values() if isinstance(game, FrozenLake)]
    assert {split_of(game, LakeState(game.size, ())) for game in lakes} == {"train"}
    tests = [start(slippery.id, episode_seed(slippery.id, split, i)) for split in ("validation", "test") for i in range(50)]  # type: ignore[arg-type]
    assert empty not in tests


# ---- games of one's own


class OneLake(FrozenLake):
    """The same lake each time."""

    def initial_state(self, rng: np.random.Generator) -> LakeState:  # noqa: ARG002
        return LakeState(self.size, ((1, 1),))


def test_a_game_with_a_single_board_shares_it_between_all_splits() -> None:
    splits = Splits(OneLake("One-v1"))
    assert not splits.are_apart
    assert splits.seed("test", 3) == candidate_seed("One-v1", "test", 3)
    assert len({splits.seed(split, 0) for split in SHARES}) == 3
    assert {splits.initial_state(split, np.random.default_rng(0)) for split in SHARES} == {LakeState(4, ((1, 1),))}


def test_every_built_in_game_has_boards_of_its_own_in_every_split() -> None:
    assert all(splits_of(game_id).are_apart for game_id in GAMES)


def test_a_split_that_is_hardly_ever_drawn_is_said_and_not_searched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = Splits(OneLake("One-v1"))
    monkeypatch.setattr("msgrpo_hub.games.splits._MOST_TRIES", 20)
    splits.are_apart = True
    [own] = [split for split in SHARES if split == split_of(splits.game, LakeState(4, ((1, 1),)))]
    other = next(split for split in SHARES if split != own)
    with pytest.raises(UserError, match=f"One-v1 has hardly any board of the split {other} .20 draws gave none"):
        splits.seed(other, 0)
    with pytest.raises(UserError, match="hardly any board"):
        splits.initial_state(other, np.random.default_rng(0))


def test_a_game_without_a_board_method_is_divided_by_its_observation() -> None:
    @dataclass(frozen=True)
    class Seen:
        """A lake behind the protocol alone."""

        lake: FrozenLake

        def __getattr__(self, name: str) -> Any:
            if name in ("board", "common_boards") or name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.lake, name)

    game: Any = Seen(GAMES[LAKE])  # type: ignore[arg-type]
    state = start(LAKE, 0)
    assert board_of(game, state) == game.observe(state)
    assert split_of(game, game.initial_state(stream(Splits(game).seed("test", 0), "initial_state"))) == "test"


@pytest.mark.parametrize("split", SHARES)
def test_an_environment_starts_from_the_boards_of_its_split(split: str) -> None:
    """What learns in it is tested on other boards: by default it draws training boards."""
    env: Any = gymnasium.make(f"{msgrpo_hub.games.environment.NAMESPACE}/{LAKE}", split=split).unwrapped
    assert {split_of(env.game, (env.reset(seed=seed), env.state)[1]) for seed in range(20)} == {split}
    assert env.split == split
    assert gymnasium.make(f"msgrpo_hub/{LAKE}").unwrapped.split == "train"  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="unknown split 'trian': did you mean 'train'"):
        msgrpo_hub.games.environment.TextGameEnv(LAKE, split="trian")  # type: ignore[arg-type]
