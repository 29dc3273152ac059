"""The part of the spread over seeds that chance in the test episodes makes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmark.experiments.spread import Causes, boards_of_tests, by_chance, causes
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


def test_variance_is_dealt_to_the_setting_the_seed_and_the_rest() -> None:
    """By hand: means 1 and 3 of the settings, 1, 2 and 3 of the seeds, no residual: components 2 and 1."""
    additive = np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    assert causes(additive, 0.5) == pytest.approx(Causes(2.0, 1.0, 0.0, 0.0)), "chance is a part of the residuals, here none"
    assert causes(additive.T, 0.0)[:2] == pytest.approx((1.0, 2.0))
    crossed = np.array([[1.0, -1.0], [-1.0, 1.0]])  # MS_A = MS_S = 0, MS_E = 4
    assert causes(crossed, 1.0) == pytest.approx(Causes(0.0, 0.0, 3.0, 1.0))
    assert list(causes(crossed, 1.0).shares().items())[:2] == [("both", 0.75), ("chance", 0.25)]


def test_the_components_of_drawn_means_are_those_they_were_drawn_with() -> None:
    draws = np.random.default_rng(0)
    setting, seed, rest = draws.normal(0, 2, (300, 1)), draws.normal(0, 1, (1, 300)), draws.normal(0, 0.5, (300, 300))
    assert causes(setting + seed + rest, 0.05) == pytest.approx(Causes(4.0, 1.0, 0.2, 0.05), rel=0.2)
