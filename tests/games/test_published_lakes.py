"""Frozen Lake with the settings of other projects: how their lakes are drawn, and what optimal and random play score on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS

from msgrpo_hub.games import GAMES, Game, board_of, episode_seed, make_game, splits_of, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.lake_maps import CountedHoles, GivenMap, RandomEnds, RllmMaps, _is_connected
from msgrpo_hub.games.lake_means import Means, _sampled, lake_means, mean_of
from msgrpo_hub.games.published_lakes import LAKES, SCALES
from msgrpo_hub.games.solving import solve


def solved(game: FrozenLake, count: int) -> np.ndarray[Any, Any]:
    """Values of optimal and of random play on lakes that the game draws, by the generic solver; (count, 2)."""
    rng, values = stream(0, "initial_state"), []
    for _ in range(count):
        start = game.initial_state(rng)
        table = solve(game, start)
        values.append((table.best(start), table.blind(start)))
    return np.array(values)


# ---- the mean values


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
    means = lake_means({**GAMES, **LAKES}[game_id])  # type: ignore[arg-type]
    slack = 0.0006 if "Gymnasium" in game_id else 0.008  # theirs are means over samples of lakes
    assert (means.optimal, means.random) == pytest.approx((optimal, random), abs=slack)
    assert (means.optimal_error, means.random_error) == (0.0, 0.0)


def test_the_smallest_lakes_are_what_they_are_by_hand() -> None:
    # 2×2, ice 1/2, one dry turn: the goal lies beside the start on 8 of 12 lakes, whatever the ice, and across on 4, where one
    # of the two other cells must be ice (3/4): of weight 8 + 3, 8 are won by the best move, and by 1 of 4 random moves.
    means = lake_means(FrozenLake("lake", size=2, frozen_probability=0.5, horizon=1, maps=RandomEnds()))
    assert means.optimal == pytest.approx(8 / 11)
    assert means.random == pytest.approx(2 / 11)


@pytest.mark.parametrize(
    "game_id", ["FrozenLake-RAGEN1-v1", "FrozenLake-RAGEN2-Slippery-v1", "FrozenLake-TextArena-v1", "FrozenLake-Slippery-v1"]
)
def test_enumerated_means_agree_with_lakes_that_are_drawn_and_solved_one_by_one(game_id: str) -> None:
    game: Game = make_game(game_id)
    assert isinstance(game, FrozenLake)
    game = replace(game, horizon=min(game.horizon, 15))
    means, values = lake_means(game), solved(game, 80)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - (means.optimal, means.random)) <= 4 * error + 1e-6)


@pytest.mark.parametrize(
    "game_id",
    [
        *("FrozenLake-RAGEN1-v1", "FrozenLake-rLLM-Slippery-5x5-v1", "FrozenLake-rLLM-9x9-v1", "FrozenLake-Slippery-v1"),
        "FrozenLake-Trap-v1",
    ],
)
def test_lakes_solved_together_have_the_values_that_the_generic_solver_gives_each(game_id: str) -> None:
    game: Game = make_game(game_id)
    assert isinstance(game, FrozenLake)
    means, values = _sampled(game, 6), solved(game, 6)
    assert (means.optimal, means.random) == pytest.approx(tuple(values.mean(axis=0)), abs=1e-12)
    assert means.random_error == pytest.approx(values[:, 1].std(ddof=1) / np.sqrt(6), abs=1e-12)


def test_a_mixture_is_worth_the_mean_of_its_games_and_errors_add_in_squares() -> None:
    mixed = mean_of([Means(1.0, 0.2, 0.0, 0.03), Means(0.5, 0.4, 0.0, 0.04)])
    assert (mixed.optimal, mixed.random, mixed.optimal_error) == (0.75, pytest.approx(0.3), 0.0)
    assert mixed.random_error == pytest.approx(0.025)


# ---- how lakes are drawn


def test_given_maps_are_gymnasiums() -> None:
    assert {game.maps.rows for game in LAKES.values() if isinstance(game.maps, GivenMap)} == {
        tuple(MAPS["4x4"]),
        tuple(MAPS["8x8"]),
    }


def test_random_ends_are_any_two_cells_that_a_path_joins() -> None:
    rng, ends = np.random.default_rng(0), Counter()
    for _ in range(3000):
        holes, start, goal = RandomEnds().draw(3, 0.6, rng)
        ice = [cell not in holes for cell in np.ndindex(3, 3)]
        assert start != goal
        assert {start, goal}.isdisjoint(holes)
        assert _is_connected(ice, 3, start[0] * 3 + start[1], goal[0] * 3 + goal[1])
        ends[start, goal] += 1
    assert len(ends) == 72
    # Ends apart from each other are refused more often. With ice 1, all 72 pairs would come equally often.
    assert ends[(0, 0), (0, 1)] > 1.5 * ends[(0, 0), (2, 2)]


def test_counted_holes_are_so_many_and_leave_a_way() -> None:
    rng = np.random.default_rng(0)
    lakes = [CountedHoles(3).draw(4, 0.0, rng) for _ in range(300)]
    assert {len(holes) for holes, _, _ in lakes} == {3}
    assert {(start, goal) for _, start, goal in lakes} == {((0, 0), (3, 3))}
    seen = {cell for holes, _, _ in lakes for cell in holes}
    assert seen == set(np.ndindex(4, 4)) - {(0, 0), (3, 3)}
    assert not any({(0, 1), (1, 0)} <= set(holes) for holes, _, _ in lakes)


def corridor(length: int, size: int = 12) -> list[bool]:
    return [cell < length for cell in range(size * size)]


def test_the_search_of_rllm_reaches_one_cell_beyond_its_depth_and_not_two() -> None:
    """A corridor to the right: it looks around from cells up to 8 steps away, so a goal 9 steps away is found."""
    assert RllmMaps(depth=8).accepts(corridor(10), 12, 0, 9)
    assert not RllmMaps(depth=8).accepts(corridor(11), 12, 0, 10)


def test_the_search_of_rllm_refuses_a_near_goal_that_it_comes_to_by_a_detour() -> None:
    # P . .   The goal is 4 steps down. The search goes Right first, around the hole, and marks (2, 0) after 6 steps. With depth 6
    # . O .   it does not look further from (3, 0), step 7, and never comes back to (2, 0) by the short way.
    # . . .
    # .
    # G
    ways = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)}
    ice = [cell in ways for cell in np.ndindex(5, 5)]
    assert not RllmMaps(depth=6).accepts(ice, 5, 0, 20)
    assert RllmMaps(depth=7).accepts(ice, 5, 0, 20)
    assert RandomEnds().accepts(ice, 5, 0, 20)


def test_the_ice_of_rllm_is_between_0_6_and_0_85() -> None:
    rng = np.random.default_rng(0)
    holes = [len(RllmMaps().draw(9, 0.0, rng)[0]) / 79 for _ in range(200)]
    assert 0.15 < np.mean(holes) < 0.4


# ---- the games


def test_a_slip_goes_where_gymnasium_says_with_a_success_rate() -> None:
    rows = ["SFFF", "FHFF", "FFFF", "FFFG"]
    env: Any = gymnasium.make("FrozenLake-v1", desc=rows, is_slippery=True, success_rate=0.8)
    game = replace(LAKES["FrozenLake-RAGEN2-Slippery-v1"], maps=GivenMap(tuple(rows)))
    for cell in [(0, 0), (0, 2), (2, 1), (3, 2)]:
        for number, action in enumerate(game.actions):
            theirs: Counter[Any] = Counter()
            for chance, after, reward, ended in env.unwrapped.P[4 * cell[0] + cell[1]][number]:
                theirs[divmod(int(after), 4), float(reward), bool(ended)] += chance
            ours: Counter[Any] = Counter()
            for chance, after in game.outcomes(LakeState(4, ((1, 1),), cell), action):
                ours[after.state.player, after.reward, after.terminated] += chance
            assert {key: pytest.approx(chance) for key, chance in theirs.items()} == ours


def test_a_step_slips_as_often_as_its_outcomes_say() -> None:
    game, state, rng = (
        LAKES["FrozenLake-RAGEN2-Slippery-v1"],
        LakeState(4, (), (1, 1), given_goal=(3, 0)),
        np.random.default_rng(0),
    )
    ends = Counter(game.step(state, "Right", rng).state.player for _ in range(4000))
    assert ends[1, 2] / 4000 == pytest.approx(0.8, abs=0.03)
    assert ends[0, 1] / 4000 == pytest.approx(0.1, abs=0.02)
    assert ends[0, 1] + ends[1, 2] + ends[2, 1] == 4000
    assert "where you want with chance 0.8 and to each side with chance 0.1" in "\n".join(game.rules)


def test_the_goal_is_where_the_lake_has_it() -> None:
    state = LakeState(4, ((0, 0),), (2, 2), given_goal=(2, 1))
    game = LAKES["FrozenLake-RAGEN2-v1"]
    assert game.observe(state).splitlines()[:3] == ["You: (2, 2)", "Goal: (2, 1)", "Holes: (0, 0)"]
    assert game.grid(state) == ["O...", "....", ".G@.", "...."]
    after = game.step(state, "Left", np.random.default_rng(0))
    assert (after.reward, after.terminated, game.succeeded(after.state)) == (1.0, True, True)


@pytest.mark.parametrize("game_id", LAKES)
def test_no_board_of_these_lakes_is_in_two_splits(game_id: str) -> None:
    game, boards = make_game(game_id), {}
    for split in ("train", "test"):
        starts = [game.initial_state(stream(episode_seed(game_id, split, index), "initial_state")) for index in range(15)]
        boards[split] = {board_of(game, start) for start in starts}
    assert not splits_of(game_id).are_apart or not boards["train"] & boards["test"]
    if "Gymnasium" in game_id:
        assert boards["train"] == boards["test"]  # one lake, which all splits share
    assert splits_of(game_id).are_apart == ("Gymnasium" not in game_id and "2x2" not in game_id)
    assert len(boards["test"]) >= 4 or not splits_of(game_id).are_apart


def test_every_scale_names_a_commit_and_files_and_every_id_is_made_and_in_no_list_of_ours() -> None:
    assert all("@" in scale.source and "/" in scale.source for scale in SCALES)
    assert len({scale.name for scale in SCALES}) == len(SCALES)
    assert {game_id: make_game(game_id) for game_id in LAKES} == LAKES
    assert not LAKES.keys() & GAMES.keys()
    with pytest.raises(ValueError, match="did you mean 'FrozenLake-RAGEN1-v1'"):
        make_game("FrozenLake-RAGEN1-v2")
