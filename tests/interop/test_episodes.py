"""Episodes for the loops of other frameworks: the same as `play_groups` plays, by default on training boards."""

from __future__ import annotations

from typing import Any

import pytest

from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.games.seeds import SHARES, split_of
from msgrpo_hub.interop.episodes import start_play
from msgrpo_hub.rollout import play_groups
from tests.interop.replies import Mixed

LAKE = make_game("FrozenLake-Slippery-v1")


@pytest.mark.parametrize("game_id", [LAKE.id, "Snake-Standard-v1", "Taxi-Gymnasium-v1", "Snake-Solo-v1:reflected"])
def test_the_same_seeds_members_and_replies_give_the_episodes_of_play_groups(game_id: str) -> None:
    game = make_game(game_id)
    seeds = [episode_seed(game_id, "train", index) for index in range(2)]
    for group in play_groups(game, Mixed(), seeds, 4):
        for episode in group.episodes:
            play = start_play(game, THINK_ACTION, episode.seed, episode.member)
            for step in episode.steps:
                assert play.live
                play.advance(game.observe(play.state), step.completion)
            assert play.episode() == episode


def board(**start: Any) -> str:
    return split_of(LAKE, start_play(LAKE, THINK_ACTION, **start).state)


def test_every_start_is_a_training_board_unless_a_split_is_named() -> None:
    env = TextGameEnv(LAKE.id)
    assert {split_of(env.game, (env.reset(seed=seed), env.state)[1]) for seed in range(30)} == {"train"}
    assert {board(seed=seed) for seed in range(30)} == {board() for _ in range(30)} == {"train"}
    for split in SHARES:
        assert {board(split=split, seed=seed) for seed in range(20)} == {board(split=split)} == {split}
    # A seed of another split is the number of an episode.
    seeds = range(30)
    trained = [split_of(LAKE, LAKE.initial_state(stream(seed, "initial_state"))) == "train" for seed in seeds]
    expected = [seed if own else episode_seed(LAKE.id, "train", seed) for seed, own in zip(seeds, trained, strict=True)]
    assert [start_play(LAKE, THINK_ACTION, seed=seed).seed for seed in seeds] == expected


@pytest.mark.parametrize("split", SHARES)
def test_the_seed_of_an_episode_gives_its_start_again_with_its_split(split: Any) -> None:
    for seed in range(20):
        play = start_play(LAKE, THINK_ACTION, seed=seed, split=split)
        again = start_play(LAKE, THINK_ACTION, seed=play.seed, member=play.member, split=split)
        assert (again.seed, again.member, again.state) == (play.seed, play.member, play.state)


def test_a_group_shares_its_start_and_not_its_dynamics() -> None:
    plays = [start_play(LAKE, THINK_ACTION, seed=1) for _ in range(20)]
    assert len({play.state for play in plays}) == 1
    assert len({play.member for play in plays}) == 20


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"seed": -1}, "seed = -1: expected at least 0"),
        ({"seed": "one"}, "seed = 'one': expected int"),
        ({"split": "tests"}, "did you mean 'test'"),
    ],
)
def test_a_wrong_start_says_what_was_expected(start: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        start_play(LAKE, THINK_ACTION, **start)
