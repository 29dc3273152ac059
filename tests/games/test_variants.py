"""Variants: the same episodes in other words. A player that reads wins every variant, and a player with a habit loses."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, Game, episode_seed, make_game
from msgrpo_hub.games.variants import make_variant
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.games.reading_player import IDS, LAKE, NO_SUCH, PLAIN_MOVES, SNAKE, Reader


@pytest.mark.parametrize("game_id", GAMES)
def test_a_scripted_player_gets_exactly_the_same_rewards_on_every_variant(game_id: str) -> None:
    told = [id for id in IDS if id.startswith(f"{game_id}:")]
    for name in ("random", "random-safe", "greedy", "optimal"):
        if can_play(name, make_game(game_id)):
            [plain] = play_episodes(make_game(game_id), ScriptedPolicy(SCRIPTED[name]), [(11, 1)])
            for id in told:
                [episode] = play_episodes(make_game(id), ScriptedPolicy(SCRIPTED[name]), [(11, 1)])
                assert [step.reward for step in episode.steps] == [step.reward for step in plain.steps], (name, id)
                assert [step.legal for step in episode.steps] == [step.legal for step in plain.steps], (name, id)
                assert (episode.success, episode.terminated, episode.game_id) == (plain.success, plain.terminated, id)


@pytest.mark.parametrize("id", IDS)
def test_a_stored_episode_of_a_variant_replays_to_the_states_of_its_game(id: str) -> None:
    game, plain = make_game(id), make_game(id.partition(":")[0])
    [episode], [other] = (play_episodes(each, ScriptedPolicy(choose_random), [(5, 2)]) for each in (game, plain))
    assert replayed_states(game, episode) == replayed_states(plain, other)
    with pytest.raises(ValueError, match="cannot be replayed"):
        replayed_states(plain, episode)


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


def test_a_game_of_another_package_has_no_variants_even_if_it_has_no_hash() -> None:
    @dataclass
    class Plain(Game):
        id: str = "Plain-v1"

    with pytest.raises(UserError, match="Plain-v1 has no variants"):
        make_variant(Plain(), "compass")


def held_out(game_id: str, count: int) -> list[tuple[int, int]]:
    return [(episode_seed(game_id, "test", index), 0) for index in range(count)]


def rewards(game_id: str, count: int) -> list[float]:
    game = make_game(game_id)
    return [episode.reward for episode in play_episodes(game, Reader(game.rows), held_out(game_id, count))]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_player_that_reads_wins_every_lake_however_it_is_told(variant: str) -> None:
    assert rewards(f"{LAKE}:{variant}", 40) == rewards(LAKE, 40) == [1.0] * 40


@pytest.mark.parametrize("game", [SNAKE, "FrozenLake-Slippery-v1"])
@pytest.mark.parametrize("variant", ["compass", "permuted-actions", "other-symbols", "coordinates", "grid"])
def test_where_only_words_change_a_player_that_reads_plays_the_very_same_episodes(game: str, variant: str) -> None:
    plain = rewards(game, 30)
    assert rewards(f"{game}:{variant}", 30) == plain
    assert np.ptp(plain) > 0


def test_a_player_with_a_habit_loses_where_the_words_change() -> None:
    class Habit(Reader):
        def choose(self, system: str, observation: str) -> str:
            return super().choose(re.sub("Here Down moves.*", PLAIN_MOVES, system), observation)

    game = make_game(f"{LAKE}:permuted-actions")
    assert sum(episode.reward for episode in play_episodes(game, Habit(game.rows), held_out(LAKE, 40))) <= 20
