"""Frozen Lake with the settings of other projects: how their lakes are sampled, and the exact values of play on them."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS

from msgrpo_hub.games import FURTHER, GAMES, stream
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.lake_maps import Maps, is_connected, is_found
from msgrpo_hub.games.registry import LAKES
from msgrpo_hub.games.solving import solve

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))  # the guide computes its table of lakes
from lake_means import lake_means, sampled_means


@pytest.mark.parametrize(
    ("game_id", "optimal", "random"),
    [
        ("FrozenLake-Gymnasium-4x4-v1", 0.744, 0.014),
        ("FrozenLake-Gymnasium-8x8-v1", 0.913, 0.002),
        ("FrozenLake-RAGEN1-v1", 0.499, 0.215),
        ("FrozenLake-RAGEN2-v1", 1.0, 0.250),
        ("FrozenLake-RAGEN2-Slippery-v1", 0.953, 0.251),
        ("FrozenLake-NotSlippery-v1", 1.0, 0.007),
        ("FrozenLake-Slippery-v1", 0.386, 0.066),
    ],
)
def test_exact_means_are_those_that_others_computed(game_id: str, optimal: float, random: float) -> None:
    means = lake_means({**GAMES, **LAKES}[game_id])
    slack = 0.0006 if "Gymnasium" in game_id else 0.008  # theirs are means over samples of lakes
    assert (means.optimal, means.random) == pytest.approx((optimal, random), abs=slack)
    assert (means.optimal_error, means.random_error) == (0.0, 0.0)


@pytest.mark.parametrize("game_id", ["FrozenLake-RAGEN1-v1", "FrozenLake-rLLM-Slippery-5x5-v1", "FrozenLake-Trap-v1"])
def test_lakes_solved_together_have_the_values_of_the_generic_solver(game_id: str) -> None:
    game: Any = {**GAMES, **FURTHER}[game_id]
    rng, values = stream(0, "initial_state"), []
    for _ in range(6):
        start = game.initial_state(rng)
        table = solve(game, start)
        values.append((table.best(start), table.blind(start)))
    means = sampled_means(game, 6)
    assert (means.optimal, means.random) == pytest.approx(tuple(np.mean(values, axis=0)), abs=1e-12)


def test_random_ends_are_any_two_cells_that_a_path_joins() -> None:
    rng, ends = np.random.default_rng(0), Counter()
    for _ in range(3000):
        holes, start, goal = Maps(random_ends=True).sample(3, 0.6, rng)
        ice = [cell not in holes for cell in np.ndindex(3, 3)]
        assert start != goal
        assert {start, goal}.isdisjoint(holes)
        assert is_connected(ice, 3, start[0] * 3 + start[1], goal[0] * 3 + goal[1])
        ends[start, goal] += 1
    assert len(ends) == 72
    # Ends apart from each other are refused more often. With ice 1, all 72 pairs would come equally often.
    assert ends[(0, 0), (0, 1)] > 1.5 * ends[(0, 0), (2, 2)]


def test_the_search_of_rllm_reaches_one_cell_beyond_its_depth_and_not_two() -> None:
    corridors = {steps: [cell <= steps for cell in range(12 * 12)] for steps in (9, 10)}
    assert [is_found(ice, 12, 0, goal, depth=8) for goal, ice in corridors.items()] == [True, False]


def test_a_slip_goes_where_gymnasium_says_with_a_success_rate() -> None:
    rows = ["SFFF", "FHFF", "FFFF", "FFFG"]
    env: Any = gymnasium.make("FrozenLake-v1", desc=rows, is_slippery=True, success_rate=0.8)
    game = replace(LAKES["FrozenLake-RAGEN2-Slippery-v1"], maps=Maps(rows=tuple(rows)))
    for cell in [(0, 0), (0, 2), (2, 1), (3, 2)]:
        for number, action in enumerate(game.actions):
            theirs: Counter[Any] = Counter()
            for chance, after, reward, ended in env.unwrapped.P[4 * cell[0] + cell[1]][number]:
                theirs[divmod(int(after), 4), float(reward), bool(ended)] += chance
            ours: Counter[Any] = Counter()
            for chance, after in game.outcomes(LakeState(4, ((1, 1),), cell), action):
                ours[after.state.player, after.reward, after.terminated] += chance
            assert {key: pytest.approx(chance) for key, chance in theirs.items()} == ours


def test_given_maps_are_gymnasiums() -> None:
    assert {game.maps.rows for game in LAKES.values()} - {()} == {tuple(MAPS["4x4"]), tuple(MAPS["8x8"])}


def test_counted_holes_are_so_many_and_leave_a_way() -> None:
    rng = np.random.default_rng(0)
    lakes = [Maps(holes=3).sample(4, 0.0, rng) for _ in range(300)]
    assert {len(holes) for holes, _, _ in lakes} == {3}
    assert {(start, goal) for _, start, goal in lakes} == {((0, 0), (3, 3))}
    seen = {cell for holes, _, _ in lakes for cell in holes}
    assert seen == set(np.ndindex(4, 4)) - {(0, 0), (3, 3)}
    assert not any({(0, 1), (1, 0)} <= set(holes) for holes, _, _ in lakes)
