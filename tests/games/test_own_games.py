"""A game of one's own: Cliff Walking on 4 × 12 cells, solved by hand, played, drawn and rotated; and all solvable games."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from examples import cliff_walking
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import GAMES, VARIANTS, stream
from msgrpo_hub.games.game import is_solvable, planes
from msgrpo_hub.games.solving import optimal_value, random_value, solve
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random
from msgrpo_hub.rendering.replay_svg import replay_svg
from msgrpo_hub.rollout import play_episodes

GAME, START = cliff_walking.CliffWalking(), cliff_walking.State()
SOLVABLE = [*(game for game in GAMES.values() if is_solvable(game)), GAME]


@pytest.mark.parametrize(("horizon", "best"), [(1, -1), (12, -12), (13, -13), (20, -13)])
def test_the_best_way_along_the_cliff_costs_13_turns(horizon: int, best: float) -> None:
    """Up, eleven times Right, Down: 13 turns of −1. With less time the best is not to fall, and −1 a turn."""
    game = replace(GAME, horizon=horizon)
    assert optimal_value(game, 0) == best > random_value(game, 0)
    [episode] = play_episodes(game, ScriptedPolicy(choose_optimal), [(0, 0)])
    assert episode.reward == best


def test_the_first_move_along_the_cliff_is_up_and_a_fall_costs_100_and_the_way_from_the_start() -> None:
    values = solve(GAME, START)
    # Right falls: −100, and 19 turns are left for the 13 of the way. Left, Down and no action lose a turn.
    expected = {"Up": -13.0, "Right": -113.0, "Left": -14.0, "Down": -14.0, None: -14.0}
    assert {action: values.of(START, action) for action in expected} == expected


@pytest.mark.parametrize("player", [choose_random, choose_greedy, choose_optimal])
def test_a_board_of_4_rows_and_12_columns_is_played_drawn_and_rotated(player: Any) -> None:
    assert planes(GAME, START).shape == (4, 4, 12)
    rotated = VARIANTS["rotated"](GAME, "CliffWalking-v1:rotated")  # type: ignore[arg-type]
    assert (rotated.rows, rotated.columns, rotated.grid(START)[11]) == (12, 4, "...@")
    [plain], [turned] = (play_episodes(game, ScriptedPolicy(player), [(1, 0)]) for game in (GAME, rotated))
    assert plain.reward == turned.reward
    for game, episode, size in ((GAME, plain, ("12", "4")), (rotated, turned, ("4", "12"))):
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
