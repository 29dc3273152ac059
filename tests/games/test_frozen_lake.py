"""Frozen Lake against gymnasium's own transition table, and its rules on hand-made lakes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.game import Transition
from msgrpo_hub.games.lake_maps import random_map
from msgrpo_hub.games.registry import LAKES
from msgrpo_hub.games.solving import start_values
from msgrpo_hub.players import make_player
from msgrpo_hub.rollout import play_episodes

TRAP = FrozenLake("trap", goal_reward=-1.0)
MOVED = LAKES["FrozenLake-RAGEN2-v1"]


class Die:
    """A generator with a given roll; it records the number of sides."""

    def __init__(self, roll: int = 0) -> None:
        self.roll, self.sides = roll, 1

    def integers(self, sides: int) -> int:
        self.sides = sides
        return self.roll


def rows_of(state: LakeState) -> list[str]:
    letters = {(0, 0): "S", state.goal: "G", **dict.fromkeys(state.holes, "H")}
    return ["".join(letters.get((r, c), "F") for c in range(state.size)) for r in range(state.size)]


def distribution(game: FrozenLake, state: LakeState, action: str) -> Counter[tuple[int, float, bool]]:
    """(cell, reward, terminated) → probability, by playing every roll of the die through `step`."""
    die, found = Die(), Counter[tuple[int, float, bool]]()
    game.step(state, action, die)  # type: ignore[arg-type]
    for roll in range(die.sides):
        after = game.step(state, action, Die(roll))  # type: ignore[arg-type]
        row, column = after.state.player
        found[row * state.size + column, after.reward, after.terminated] += Fraction(1, die.sides)  # type: ignore[assignment]
    return found


def gymnasium_distribution(entries: list[tuple[float, int, int, bool]]) -> Counter[tuple[int, float, bool]]:
    found = Counter[tuple[int, float, bool]]()
    for probability, cell, reward, terminated in entries:
        # gymnasium's 1/3 is a rounded float
        found[int(cell), float(reward), bool(terminated)] += Fraction(probability).limit_denominator(3)  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(("size", "probability"), [(4, 0.8), (4, 0.9), (6, 0.9), (4, 0.6), (2, 1.0)])
def test_maps_equal_gymnasium_s_bit_for_bit(size: int, probability: float) -> None:
    for seed in [*range(300), 2**31 - 1]:
        assert random_map(size, probability, seed) == generate_random_map(size, probability, seed)


@pytest.mark.parametrize("slippery", [False, True])
def test_transitions_equal_gymnasium_s_table_on_500_maps(slippery: bool) -> None:
    for seed in range(500):
        game = FrozenLake("lake", size=6 if seed % 10 == 0 else 4, slippery=slippery)
        start = game.initial_state(stream(seed, "initial_state"))
        table: dict[int, Any] = FrozenLakeEnv(desc=rows_of(start), is_slippery=slippery).P
        for index in range(game.size**2):
            state = LakeState(game.size, start.holes, divmod(index, game.size))
            if state.terminal:
                continue
            for a, action in enumerate(game.actions):
                assert distribution(game, state, action) == gymnasium_distribution(table[index][a])


@pytest.mark.parametrize(
    ("lake", "state", "action", "cell", "reward", "terminated"),
    [
        (FrozenLake("lake", slippery=True), LakeState(4, ((0, 1),)), None, (0, 0), 0.0, False),  # no action does not slip
        (FrozenLake("lake"), LakeState(4, ()), "Left", (0, 0), 0.0, False),  # a move off the board stays
        (FrozenLake("lake"), LakeState(4, (), (3, 2), 7), "Right", (3, 3), 1.0, True),  # the goal, on the last turn
        (FrozenLake("lake"), LakeState(4, ((1, 0),)), "Down", (1, 0), 0.0, True),  # a hole
        (TRAP, LakeState(4, ((3, 2),), (2, 3)), "Down", (3, 3), -1.0, True),  # a goal to avoid
        (TRAP, LakeState(4, ((3, 2),), (2, 2)), "Down", (3, 2), 0.0, True),
        (MOVED, LakeState(4, ((0, 0),), (2, 2), given_goal=(2, 1)), "Left", (2, 1), 1.0, True),  # a goal elsewhere
    ],
)
def test_one_step_by_hand(
    lake: FrozenLake, state: LakeState, action: str | None, cell: tuple[int, int], reward: float, terminated: bool
) -> None:
    after = lake.step(state, action, np.random.default_rng(0))
    assert after == Transition(replace(state, player=cell, turn=state.turn + 1), reward, terminated, False)
    assert lake.succeeded(after.state) == (reward > 0 or (lake is TRAP and not terminated))


def test_observation_and_actions_of_a_hand_made_lake() -> None:
    assert FrozenLake("lake", size=3).observe(LakeState(3, ((0, 2), (1, 1)), (1, 0))) == (
        "You: (1, 0)\nGoal: (2, 2)\nHoles: (0, 2) (1, 1)\nGrid:\n. . O\n@ O .\n. . G"
    )
    game, state = FrozenLake("lake", size=3), LakeState(3, ((1, 1),), (1, 0))
    assert (game.legal_actions(state), game.safe_actions(state)) == (("Down", "Right", "Up"), ("Down", "Up"))
    assert TRAP.safe_actions(LakeState(4, ((3, 2),), (2, 3))) == ("Left", "Up")


def test_exactly_eight_shows_the_turns_left_and_pays_only_on_the_last_turn() -> None:
    game = FrozenLake("lake", exactly=True)
    for turns, way in {6: ["Down"] * 3 + ["Right"] * 3, 8: ["Left", "Up"] + ["Down"] * 3 + ["Right"] * 3}.items():
        state = LakeState(4, ())
        for turn, action in enumerate(way):
            assert game.observe(state).startswith(f"Turns left: {8 - turn}\n")
            after = game.step(state, action, np.random.default_rng(0))
            state = after.state
        assert (after.reward, after.terminated, game.succeeded(state)) == (float(turns == 8), True, turns == 8)


def test_success_on_the_trap_is_to_end_on_the_ice() -> None:
    episodes = play_episodes(TRAP, make_player("random-safe"), [(seed, 0) for seed in range(20)])
    assert {(episode.success, episode.truncated, episode.reward) for episode in episodes} == {(True, True, 0.0)}
    optimal, random = start_values(TRAP, 1)
    assert optimal == 0.0 > random


@pytest.mark.parametrize("told", ["Sought", "Untold", "Trap", "KeepAway"])
def test_lakes_in_other_words_differ_only_in_their_task_and_the_reward_of_the_goal(told: str) -> None:
    game, lake = make_game(f"FrozenLake-{told}-v1"), make_game("FrozenLake-NotSlippery-v1")
    state = lake.initial_state(stream(1, "initial_state"))
    assert tuple(rule.replace("gives -1", "gives 1") for rule in game.rules) == lake.rules
    assert game.instructions != lake.instructions
    assert (game.observe(state), game.horizon, game.actions) == (lake.observe(state), lake.horizon, lake.actions)
