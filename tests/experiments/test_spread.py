"""The part of the spread over seeds that chance in the test episodes makes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmark.experiments.spread import boards_of_tests, by_chance
from msgrpo_hub.games import episode_seed


def test_chance_is_what_a_policy_does_differently_on_one_board() -> None:
    """By hand: variances 0.5 and 0 on boards of two episodes, (2 · 0.5 + 2 · 0) / 4² = 1 / 16; the policy beside it has none."""
    boards = ["a", "a", "b", "b"]
    assert by_chance([[1.0, 0.0, 1.0, 1.0]], boards) == pytest.approx(1 / 4)
    assert by_chance([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], boards) == pytest.approx((1 / 32) ** 0.5)


def test_boards_that_come_once_say_nothing() -> None:
    assert by_chance([[1.0, 0.0, 1.0]], ["a", "b", "c"]) is None
    assert by_chance([[1.0, 0.0, 1.0]], ["a", "a", "c"]) == pytest.approx((0.5 / 3) ** 0.5), "the third counts as the others"


def test_policies_that_differ_in_chance_alone_have_that_spread() -> None:
    """A simulation: boards are won with probabilities that no policy changes."""
    rng = np.random.default_rng(0)
    boards = [str(k % 50) for k in range(200)]
    wins = rng.random(50)[np.arange(200) % 50]
    rewards = (rng.random((400, 200)) < wins).astype(float)
    assert by_chance(rewards.tolist(), boards) == pytest.approx(rewards.mean(1).std(ddof=1), rel=0.1)


def test_the_boards_are_those_of_the_test_episodes() -> None:
    boards = boards_of_tests("FrozenLake-NotSlippery-v1", 200)
    assert len(boards) == 200
    assert len(set(boards)) == 75, "as the README says"
    assert len({episode_seed("FrozenLake-NotSlippery-v1", "test", index) for index in range(200)}) == 200
