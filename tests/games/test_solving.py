"""Exact values against gymnasium's table, summed trajectory by trajectory in exact fractions, against hand and against play."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

import gymnasium
import numpy as np
import pytest

from examples import cliff_walking
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import GAMES, VARIANTS, episode_seed, make_game, stream
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.game import is_solvable, planes
from msgrpo_hub.games.solving import silent_value, solve, start_values
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random
from msgrpo_hub.rendering.replay_svg import replay_svg
from msgrpo_hub.rollout import play_episodes

CLIFF, START = cliff_walking.CliffWalking(), cliff_walking.State()
SOLVABLE: list[Any] = [*(game for game in GAMES.values() if is_solvable(game)), make_game("FrozenLake-RAGEN2-Slippery-v1"), CLIFF]

Table = dict[int, dict[int, list[tuple[Fraction, int, int, bool]]]]
"""Cell → action → (probability, next cell, reward, whether the episode ends)."""


@lru_cache(maxsize=64)
def table_of(size: int, holes: tuple[Cell, ...], slippery: bool) -> Table:
    """gymnasium's `P` of a hand-drawn map; its probabilities are 1 and 1/3 up to rounding."""
    rows = [["H" if (r, c) in holes else "F" for c in range(size)] for r in range(size)]
    rows[0][0], rows[-1][-1] = "S", "G"
    env: Any = gymnasium.make("FrozenLake-v1", desc=["".join(row) for row in rows], is_slippery=slippery)
    return {
        cell: {
            action: [(Fraction(p).limit_denominator(3), after, int(reward), ended) for p, after, reward, ended in ways]
            for action, ways in actions.items()
        }
        for cell, actions in env.unwrapped.P.items()
    }


def summed(table: Table, cell: int, turns: int, best: bool, exactly: bool = False) -> Fraction:
    """The expected return by summing over every trajectory; with `exactly`, only the last turn is paid."""
    values = [summed_after(table, cell, action, turns, best, exactly) for action in table[cell]] if turns else []
    return Fraction(0) if not values else max(values) if best else sum(values, Fraction(0)) / len(values)


def summed_after(table: Table, cell: int, action: int, turns: int, best: bool, exactly: bool = False) -> Fraction:
    """The same, after a first action."""
    total = Fraction(0)
    for probability, after, reward, ended in table[cell][action]:
        paid = reward if turns == 1 or not exactly else 0
        total += probability * (paid + (0 if ended else summed(table, after, turns - 1, best, exactly)))
    return total


def maps_of(size: int) -> list[tuple[Cell, ...]]:
    cells = [(r, c) for r in range(size) for c in range(size)][1:-1]  # start and goal are free
    return [holes for count in range(len(cells) + 1) for holes in combinations(cells, count)]


FIRM = [(size, holes, False, turns) for size, turns in ((2, 5), (3, 5)) for holes in maps_of(size)[:: 1 if size == 2 else 5]]
SLIPPERY = [(size, holes, True, turns) for size, turns in ((2, 4), (3, 3)) for holes in maps_of(size)[:: 1 if size == 2 else 9]]


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("best", [True, False])
def test_values_of_every_map_equal_the_sum_over_gymnasiums_trajectories(best: bool, exactly: bool) -> None:
    for size, holes, slippery, turns in FIRM + SLIPPERY:
        start = LakeState(size, holes)
        values = solve(FrozenLake("lake", size=size, slippery=slippery, horizon=turns, exactly=exactly), start)
        solved = values.best(start) if best else values.blind(start)
        assert solved == pytest.approx(float(summed(table_of(size, holes, slippery), 0, turns, best, exactly)), abs=1e-9)


def test_two_turns_on_the_smallest_slippery_lake_are_what_they_are_by_hand() -> None:
    # 2×2 without holes. Beside the goal, three of the four actions may go there, each with chance 1/3. From the start, Down
    # and Right each come to a cell beside the goal with chance 2/3.
    values = solve(FrozenLake("lake", size=2, slippery=True, horizon=2), LakeState(2, ()))
    later = {cell: LakeState(2, (), cell, turn=1) for cell in [(0, 0), (0, 1), (1, 0)]}
    assert [values.best(state) for state in later.values()] == pytest.approx([0, 1 / 3, 1 / 3])
    assert values.best(LakeState(2, ())) == pytest.approx(2 / 3 * 1 / 3)
    assert [values.blind(state) for state in later.values()] == pytest.approx([0, 1 / 4, 1 / 4])
    assert set(values.rows) == {LakeState(2, ()), *later.values()}  # the goal ends the episode


@pytest.mark.parametrize("game", [game for game in GAMES.values() if isinstance(game, FrozenLake)], ids=lambda game: game.id)
@pytest.mark.parametrize("player", ["optimal", "random"])
def test_play_on_every_lake_earns_the_exact_value(game: FrozenLake, player: str) -> None:
    rewards, values = [], []
    for seed in (episode_seed(game.id, "validation", index) for index in range(50)):
        values += [start_values(game, seed)[player == "random"]] * 6
        for member in range(6):
            state, ended, reward = game.initial_state(stream(seed, "initial_state")), False, 0.0
            dynamics, sampling = stream(seed, "dynamics", member), stream(seed, "sampling", member)
            while not ended:
                after = game.step(state, str(SCRIPTED[player](game, state, sampling)), dynamics)
                state, reward, ended = after.state, reward + after.reward, after.terminated or after.truncated
            rewards.append(reward)
    v = np.array(values)  # a return is 1 or 0, so its variance is v(1 − v)
    assert abs(np.sum(np.array(rewards) - v)) < 3 * np.sqrt(np.sum(v * (1 - v))) + 1e-9


class Drifting(FrozenLake):
    """Without an action, the player drifts Right or Down."""

    def outcomes(self, state: LakeState, action: str | None) -> Any:
        moves = ("Right", "Down") if action is None else (action,)
        return [(chance / len(moves), after) for move in moves for chance, after in super(Drifting, self).outcomes(state, move)]


def test_the_value_of_silence_is_exact_where_the_player_drifts_without_an_action() -> None:
    # 2×2 without holes: after a turn beside the goal, then each turn to the goal with chance 1/2.
    lakes = [Drifting("lake", size=2, frozen_probability=1.0, horizon=horizon) for horizon in (1, 2, 3, 4)]
    assert [silent_value(lake, 0) for lake in lakes] == [0, 1 / 2, 3 / 4, 7 / 8]
    assert silent_value(CLIFF, 0) == -20


@pytest.mark.parametrize(("horizon", "best"), [(1, -1), (12, -12), (13, -13), (20, -13)])
def test_the_best_way_along_the_cliff_costs_13_turns(horizon: int, best: float) -> None:
    game = replace(CLIFF, horizon=horizon)
    optimal, random = start_values(game, 0)
    assert optimal == best > random
    [episode] = play_episodes(game, ScriptedPolicy(choose_optimal), [(0, 0)])
    assert episode.reward == best


@pytest.mark.parametrize("player", [choose_random, choose_greedy, choose_optimal])
def test_a_board_of_4_rows_and_12_columns_is_played_drawn_and_rotated(player: Any) -> None:
    assert planes(CLIFF, START).shape == (4, 4, 12)
    rotated = VARIANTS["rotated"](CLIFF, "CliffWalking-v1:rotated")  # type: ignore[arg-type]
    assert (rotated.rows, rotated.columns, rotated.grid(START)[11]) == (12, 4, "...@")
    [plain], [turned] = (play_episodes(game, ScriptedPolicy(player), [(1, 0)]) for game in (CLIFF, rotated))
    assert plain.reward == turned.reward
    for game, episode, size in ((CLIFF, plain, ("12", "4")), (rotated, turned, ("4", "12"))):
        drawn = ET.fromstring(replay_svg(game, [("one", episode)]))
        fields = drawn.iterfind(".//{*}rect[@class='field']")
        assert {(field.get("width"), field.get("height")) for field in fields} == {size}


@pytest.mark.parametrize("game", SOLVABLE, ids=lambda game: game.id)
def test_outcomes_have_probabilities_that_sum_to_1_and_step_samples_them(game: Any) -> None:
    rng, start = np.random.default_rng(0), game.initial_state(stream(3, "initial_state"))
    for action in (*game.actions, None):
        listed: Counter[Any] = Counter()
        for chance, after in game.outcomes(start, action):
            listed[after] += chance
        assert sum(listed.values()) == pytest.approx(1, abs=1e-12)
        sampled = Counter(game.step(start, action, rng) for _ in range(600))
        assert sampled.keys() == listed.keys()
        assert all(abs(sampled[after] / 600 - listed[after]) < 0.1 for after in listed)  # five standard errors


@pytest.mark.parametrize("game", SOLVABLE, ids=lambda game: game.id)
def test_values_satisfy_bellmans_equation_and_optimal_play_is_never_below_random_play(game: Any) -> None:
    start = game.initial_state(stream(4, "initial_state"))
    values = solve(game, start)
    for state in list(values.rows)[:: max(1, len(values.rows) // 60)]:
        worth = {}
        for action in (*game.actions, None):
            outcomes = game.outcomes(state, action)
            later = [0 if after.terminated or after.truncated else values.best(after.state) for _, after in outcomes]
            worth[action] = sum(chance * (after.reward + v) for (chance, after), v in zip(outcomes, later, strict=True))
            assert values.of(state, action) == pytest.approx(worth[action], abs=1e-12)
        assert values.best(state) == pytest.approx(max(worth[action] for action in game.actions), abs=1e-12)
        assert values.best(state) >= values.blind(state) - 1e-12
