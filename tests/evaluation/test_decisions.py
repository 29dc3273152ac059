"""Optimal moves count decisions that matter: elsewhere every action is optimal, also to a player that never succeeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.games import make_game
from msgrpo_hub.games.solving import values_at
from msgrpo_hub.rollout import replayed_states

LAKE = "FrozenLake-NotSlippery-v1"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    suite = Suite(name="mine", tasks=(LAKE,), episodes=100)
    results = evaluate(["random", "optimal", "silent"], suite, tmp_path_factory.mktemp("played"))
    return {result.player: result for result in results}


def decisions(result: Result) -> list[tuple[float, bool]]:
    """The share of optimal actions, and whether one was taken, in every state whose actions differ in value; from the values."""
    game, found = make_game(LAKE), []
    for episode in result.episodes:
        for state, step in zip(replayed_states(game, episode), episode.steps, strict=False):
            q = np.array([values_at(game, state).of(state, action) for action in game.actions])
            if np.ptp(q) > 1e-9:
                best = dict(zip(game.actions, q >= q.max() - 1e-9, strict=True))
                found.append((float(np.mean([*best.values()])), bool(best.get(str(step.action)))))
    return found


def test_random_play_is_near_chance_on_firm_ice(played: dict[str, Result]) -> None:
    """Over all moves it was at 83 %, on a lake where it hardly ever succeeds."""
    random = played["random"]
    shares, taken = zip(*decisions(random), strict=True)
    assert (random.summary["decisions"], random.summary["optimal_decisions"]) == (len(taken), pytest.approx(np.mean(taken)))
    chance, error = np.mean(shares), np.sqrt(np.sum(np.multiply(shares, np.subtract(1, shares)))) / len(shares)
    assert random.summary["optimal_decisions"] == pytest.approx(chance, abs=3 * error)
    assert chance < 0.6
    over_all = sum(score.optimal_steps or 0 for score in random.scores) / random.summary["steps"]
    assert over_all > chance + 0.2


def test_optimal_play_is_always_right_and_silence_is_not(played: dict[str, Result]) -> None:
    """Beside a hole silence is as good as any move, until the turns run short."""
    assert played["optimal"].summary["optimal_decisions"] == 1
    assert played["optimal"].summary["decisions"] > 100
    assert 0 < played["silent"].summary["optimal_decisions"] < 0.5
    assert f"100% of {played['optimal'].summary['decisions']}" in results_table([played["optimal"]])


def test_a_game_that_is_not_solved_has_no_decisions_to_judge(tmp_path: Path) -> None:
    [result] = evaluate("random", Suite(name="mine", tasks=("Snake-Solo-v1",), episodes=2), tmp_path)
    assert (result.summary["decisions"], result.summary["optimal_decisions"]) == (None, None)
