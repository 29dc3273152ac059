"""Variants: the same episodes in other words, and bad names of variants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, episode_seed, make_game, stream
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.games.reading_player import IDS, NO_SUCH, SNAKE, read_moves, seeds

# ---- the same episodes


@pytest.mark.parametrize("game_id", GAMES)
@given(seed=seeds)
@settings(max_examples=2)
def test_a_scripted_player_gets_exactly_the_same_rewards_on_every_variant(game_id: str, seed: int) -> None:
    told = [id for id in IDS if id.startswith(f"{game_id}:")]
    for name in ("random", "random-safe", "greedy", "optimal"):
        if can_play(name, make_game(game_id)):
            [plain] = play_episodes(make_game(game_id), ScriptedPolicy(SCRIPTED[name]), [(seed, 1)])
            for id in told:
                [episode] = play_episodes(make_game(id), ScriptedPolicy(SCRIPTED[name]), [(seed, 1)])
                assert [step.reward for step in episode.steps] == [step.reward for step in plain.steps], (name, id)
                assert [step.legal for step in episode.steps] == [step.legal for step in plain.steps], (name, id)
                assert (episode.success, episode.terminated, episode.game_id) == (plain.success, plain.terminated, id)


@pytest.mark.parametrize("id", IDS)
def test_a_stored_episode_of_a_variant_replays_to_the_states_of_its_game(id: str) -> None:
    game, plain = make_game(id), make_game(id.partition(":")[0])
    [episode] = play_episodes(game, ScriptedPolicy(choose_random), [(5, 2)])
    [other] = play_episodes(plain, ScriptedPolicy(choose_random), [(5, 2)])
    assert replayed_states(game, episode) == replayed_states(plain, other)
    with pytest.raises(ValueError, match="cannot be replayed"):
        replayed_states(plain, episode)


def test_a_variant_shares_the_seeds_of_its_game() -> None:
    assert episode_seed(f"{SNAKE}:rotated", "test", 3) == episode_seed(SNAKE, "test", 3)


# ---- bad input


@pytest.mark.parametrize(
    ("id", "words"),
    [
        (f"{SNAKE}:reflectd", "unknown variant 'reflectd': did you mean 'reflected'?"),
        (f"{SNAKE}:upside-down", "unknown variant 'upside-down': expected one of reflected, rotated, "),
        (f"{SNAKE}:", "unknown variant '': expected one of reflected, "),
        (f"{SNAKE}:reflected:rotated", "unknown variant 'reflected:rotated'"),
        ("Snake-Standart-v1:reflected", f"unknown game 'Snake-Standart-v1': did you mean '{SNAKE}'?"),
        *((id, "since its rules name a direction: expected another variant") for id in sorted(NO_SUCH)),
    ],
)
def test_a_variant_that_does_not_exist_is_refused_in_one_line(id: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_game(id)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_items_that_roll_down_still_roll_down_in_the_variants_that_are_left() -> None:
    for variant in ("", ":reflected", ":other-symbols"):
        game = make_game(f"Snake-DownHill-v1{variant}")
        assert isinstance(make_game("Snake-DownHill-v1"), Snake)
        prompt = build_prompt(game, game.initial_state(stream(1, "initial_state")))
        assert "Items roll one cell Down each turn." in prompt.system
        assert read_moves(prompt.system)["Down"] == (1, 0)
