"""A lake whose goal is a trap: the same boards under a rule that turns the game round."""

from __future__ import annotations

import numpy as np
import pytest

from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.solving import optimal_value, random_value
from msgrpo_hub.games.variants import unchanged
from msgrpo_hub.players import make_player
from msgrpo_hub.rendering.endings import how_it_ended
from msgrpo_hub.rollout import play_episodes

TRAP = make_game("FrozenLake-Trap-v1")
LAKE = make_game("FrozenLake-NotSlippery-v1")


def test_the_goal_takes_one_and_a_hole_nothing() -> None:
    lake, rng = LakeState(size=4, holes=((3, 2),), player=(2, 3)), np.random.default_rng(0)
    into_the_trap, into_the_hole = TRAP.step(lake, "Down", rng), TRAP.step(LakeState(4, ((3, 2),), (2, 2)), "Down", rng)
    assert (into_the_trap.reward, into_the_trap.terminated, TRAP.succeeded(into_the_trap.state)) == (-1.0, True, False)
    assert (into_the_hole.reward, into_the_hole.terminated, TRAP.succeeded(into_the_hole.state)) == (0.0, True, False)
    assert TRAP.safe_actions(lake) == ("Left", "Up")


def test_success_is_to_end_on_the_ice() -> None:
    episodes = play_episodes(TRAP, make_player("random-safe"), [(seed, 0) for seed in range(20)])
    assert {(episode.success, episode.truncated, episode.reward) for episode in episodes} == {(True, True, 0.0)}


@pytest.mark.parametrize("told", ["Sought", "Untold", "Trap", "KeepAway"])
def test_only_what_is_told_of_the_goal_and_its_reward_differ_from_the_lake(told: str) -> None:
    game, state = make_game(f"FrozenLake-{told}-v1"), LAKE.initial_state(stream(1, "initial_state"))
    assert tuple(rule.replace("gives -1", "gives 1") for rule in game.rules) == LAKE.rules
    assert game.instructions.startswith("You walk on a frozen lake. ")
    assert game.instructions != LAKE.instructions
    assert (game.observe(state), game.horizon, game.actions) == (LAKE.observe(state), LAKE.horizon, LAKE.actions)


def test_optimal_play_is_worth_nothing_and_habit_loses() -> None:
    assert optimal_value(TRAP, 1) == 0.0 > random_value(TRAP, 1)
    assert unchanged(TRAP).rules == LAKE.rules
    assert isinstance(TRAP, FrozenLake)


def test_an_episode_ends_in_words_that_fit() -> None:
    before = LakeState(4, (), (2, 3), turn=6)
    trapped, safe = LakeState(4, (), (3, 3), turn=7), LakeState(4, (), (1, 3), turn=7)
    assert how_it_ended(TRAP, [before, trapped], "Down", success=False, terminated=True) == "reached the goal, which is a trap"
    assert how_it_ended(TRAP, [before, before, safe], "Up", success=True, terminated=False) == "stayed on the ice for 2 turns"
