"""Exact lake values against gymnasium's own transition table, walked trajectory by trajectory, and against play.

`players/test_scripted.py` walks the tree of our own rules. Here the tree is gymnasium's: a map drawn as gymnasium wants it,
its table `P`, exact fractions, and nothing of ours but the numbers under test.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

import gymnasium
import numpy as np
import pytest

from msgrpo_hub.agent.policy import Chooser
from msgrpo_hub.games import GAMES, episode_seed, make_game, stream
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.solving import optimal_value, random_value, solve
from msgrpo_hub.players.registry import SCRIPTED

LAKES = [game_id for game_id, game in GAMES.items() if isinstance(game, FrozenLake)]
RNG = np.random.default_rng(0)
"""The optimal player draws nothing from it."""


# ---- gymnasium's table


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
    """Every set of holes that leaves start and goal free."""
    cells = [(r, c) for r in range(size) for c in range(size)][1:-1]
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


# ---- play


def played_reward(game: FrozenLake, choose: Chooser, seed: int, member: int = 0) -> float:
    """One episode without the prompts that a rollout writes."""
    state, ended, reward = game.initial_state(stream(seed, "initial_state")), False, 0.0
    dynamics, sampling = stream(seed, "dynamics", member), stream(seed, "sampling", member)
    while not ended:
        after = game.step(state, choose(game, state, sampling), dynamics)
        state, reward, ended = after.state, reward + after.reward, after.terminated or after.truncated
    return reward


def starts(game_id: str) -> list[int]:
    """Seeds of 50 maps; each is solved once and played several times, since solving is what takes time."""
    return [episode_seed(game_id, "validation", index) for index in range(50)]


def lake(game_id: str) -> FrozenLake:
    game = make_game(game_id)
    assert isinstance(game, FrozenLake)
    return game


def standard_errors(rewards: list[float], values: list[float]) -> float:
    """By how many standard errors rewards lie above values: a return is 1 or 0, so its variance is v(1 − v)."""
    v = np.array(values)
    spread = np.sqrt(np.sum(v * (1 - v)))
    gap = float(np.sum(np.array(rewards) - v))
    return 0.0 if abs(gap) < 1e-9 else gap / max(float(spread), 1e-9)


@pytest.mark.parametrize("game_id", LAKES)
@pytest.mark.parametrize(("player", "value"), [("optimal", optimal_value), ("random", random_value)])
def test_play_on_every_lake_earns_the_exact_value(game_id: str, player: str, value: Callable[..., float]) -> None:
    game = lake(game_id)
    members = {seed: [(seed, member) for member in range(6)] for seed in starts(game_id)}
    rewards = [played_reward(game, SCRIPTED[player], *episode) for episodes in members.values() for episode in episodes]
    worth = [value(game, seed) for seed, episodes in members.items() for _ in episodes]
    assert abs(standard_errors(rewards, worth)) < 3


# ---- threads
