"""The return range that a game declares: no episode leaves it, and a game of Snake can reach its ends."""

from __future__ import annotations

import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import GAMES, episode_seed, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes

SLOW = {"planner": 3}


@pytest.mark.parametrize("game_id", GAMES)
def test_no_episode_of_any_scripted_player_leaves_the_return_range_of_its_game(game_id: str) -> None:
    game = make_game(game_id)
    low, high = return_range(game)
    for name in SCRIPTED:
        if can_play(name, game):
            seeds = [(episode_seed(game_id, "train", index), 0) for index in range(SLOW.get(name, 25))]
            assert all(low <= e.reward <= high for e in play_episodes(game, ScriptedPolicy(SCRIPTED[name]), seeds)), name


def test_a_snake_dies_once_and_eats_once_a_turn() -> None:
    assert return_range(make_game("Snake-Standard-v1")) == (-2, 20)
    assert return_range(make_game("Snake-PoisonApple-v1")) == (-21, 0)  # 19 poisoned apples, then a wall
    assert return_range(make_game("Snake-Fire-v1")) == (-21, 20)
    assert return_range(make_game("Snake-Banana-v1")) == (-2, 200)


def test_a_variant_has_the_return_range_of_its_game() -> None:
    assert return_range(make_game("Snake-Short-v1:reflected")) == return_range(make_game("Snake-Short-v1")) == (-2, 8)
