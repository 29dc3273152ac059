"""Frozen Lake against gymnasium's own transition table, and its rules on hand-made lakes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from msgrpo_hub.games import stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.game import Transition
from msgrpo_hub.games.lake_maps import random_map


class Die:
    """A generator whose next roll is known; it keeps how many sides it was asked for."""

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
        # gymnasium's 1/3 is a rounded float; as a fraction of a small denominator it is meant exactly.
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


@pytest.mark.parametrize("slippery", [False, True])
def test_outcomes_are_what_step_draws_from(slippery: bool) -> None:
    game = FrozenLake("lake", slippery=slippery, horizon=99)
    for player in [(0, 0), (1, 1), (2, 3)]:
        state = LakeState(4, ((1, 2),), player)
        for action in game.actions:
            listed = Counter[LakeState]()
            for probability, after in game.outcomes(state, action):
                listed[after.state] += probability  # type: ignore[assignment]
            rng = np.random.default_rng(0)
            drawn = Counter(game.step(state, action, rng).state for _ in range(1500))
            assert sum(listed.values()) == 1
            assert drawn.keys() == listed.keys()
            # Five standard errors of a share at n = 1500.
            assert all(abs(drawn[after] / 1500 - float(listed[after])) < 0.065 for after in listed)


def test_no_action_stays_and_does_not_slip() -> None:
    game, state = FrozenLake("lake", slippery=True), LakeState(4, ((0, 1),))
    assert game.outcomes(state, None) == [(1.0, Transition(LakeState(4, ((0, 1),), (0, 0), 1), 0.0, False, False))]
    assert {game.step(state, None, np.random.default_rng(seed)).state.player for seed in range(50)} == {(0, 0)}


def test_a_move_off_the_board_stays_and_costs_a_turn() -> None:
    after = FrozenLake("lake").step(LakeState(4, ()), "Left", np.random.default_rng(0))
    assert (after.state, after.reward) == (LakeState(4, (), (0, 0), 1), 0.0)


def test_the_goal_gives_one_and_ends_the_episode_even_on_the_last_turn() -> None:
    game = FrozenLake("lake", horizon=8)
    after = game.step(LakeState(4, (), (3, 2), 7), "Right", np.random.default_rng(0))
    assert (after.reward, after.terminated, after.truncated) == (1.0, True, False)
    assert game.succeeded(after.state)


def test_a_hole_gives_nothing_and_ends_the_episode() -> None:
    game = FrozenLake("lake")
    after = game.step(LakeState(4, ((1, 0),)), "Down", np.random.default_rng(0))
    assert (after.reward, after.terminated, after.truncated) == (0.0, True, False)
    assert not game.succeeded(after.state)


def test_every_map_has_a_free_start_and_goal_and_the_share_of_holes_asked_for() -> None:
    game = FrozenLake("lake", frozen_probability=0.8)
    lakes = [game.initial_state(stream(seed, "initial_state")) for seed in range(500)]
    assert all((0, 0) not in lake.holes and lake.goal not in lake.holes for lake in lakes)
    # 14 cells at 0.2 are 2.8 holes; maps without a way are thrown away, which leaves fewer.
    assert 2.0 < np.mean([len(lake.holes) for lake in lakes]) < 2.8


def test_observation_of_a_hand_made_lake() -> None:
    assert FrozenLake("lake", size=3).observe(LakeState(3, ((0, 2), (1, 1)), (1, 0))) == (
        "You: (1, 0)\nGoal: (2, 2)\nHoles: (0, 2) (1, 1)\nGrid:\n. . O\n@ O .\n. . G"
    )


def test_legal_and_safe_actions_of_a_hand_made_lake() -> None:
    game, state = FrozenLake("lake", size=3), LakeState(3, ((1, 1),), (1, 0))
    assert game.legal_actions(state) == ("Down", "Right", "Up")
    assert game.safe_actions(state) == ("Down", "Up")


def test_only_slippery_ice_says_so_in_the_rules() -> None:
    assert any("slippery" in rule for rule in FrozenLake("lake", slippery=True).rules)
    assert not any("slippery" in rule for rule in FrozenLake("lake").rules)
