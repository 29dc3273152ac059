"""Games of one's own: Cliff Walking on 4 × 12 cells, solved by hand, played, drawn and rotated; and all solvable games."""

from __future__ import annotations

import ast
import importlib.util
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import GAMES, VARIANTS, make_game, render_text, stream
from msgrpo_hub.games.environment import planes
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.solving import optimal_actions, optimal_value, random_value, solve
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.rendering.replay_data import game_data, state_data
from msgrpo_hub.rollout import play_episodes

ROOT = Path(__file__).parents[2]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


CLIFF = example("cliff_walking")
GAME = CLIFF.CliffWalking()
SOLVABLE = [*(game for game in GAMES.values() if is_solvable(game)), GAME]


@pytest.mark.parametrize(("horizon", "best"), [(1, -1), (12, -12), (13, -13), (14, -13), (20, -13)])
def test_the_best_way_along_the_cliff_costs_13_turns(horizon: int, best: float) -> None:
    """Up, eleven times Right, Down: 13 turns of −1. With less time the best is not to fall, and −1 a turn."""
    game = replace(GAME, horizon=horizon)
    assert optimal_value(game, 0) == best
    assert random_value(game, 0) < best
    [episode] = play_episodes(game, ScriptedPolicy(choose_optimal), [(0, 0)])
    assert episode.reward == best
    assert episode.success == (horizon >= 14)  # in exactly 13 turns, reaching the goal is worth no more than never falling


def test_the_first_move_along_the_cliff_is_up_and_a_fall_costs_100_and_the_way_from_the_start() -> None:
    values = solve(GAME, CLIFF.State())
    assert optimal_actions(GAME, CLIFF.State()) == ("Up",)
    # Right falls: −100, and 19 turns are left for the 13 of the way. Left, Down and no action lose a turn.
    expected = {"Up": -13.0, "Right": -113.0, "Left": -14.0, "Down": -14.0, None: -14.0}
    assert {action: values.of(CLIFF.State(), action) for action in expected} == expected


@pytest.mark.parametrize("player", [choose_random, choose_greedy, choose_optimal])
def test_a_board_of_4_rows_and_12_columns_is_played_drawn_and_rotated(player: Any) -> None:
    [episode] = play_episodes(GAME, ScriptedPolicy(player), [(1, 0)])
    start = CLIFF.State()
    assert [len(line) for line in render_text(GAME, start).splitlines()] == [27] * 6
    assert planes(GAME, start).shape == (4, 4, 12)
    assert (game_data(GAME)["rows"], game_data(GAME)["columns"]) == (4, 12)
    assert state_data(GAME, start) == {"pieces": {"C": list(range(37, 47)), "G": [47]}, "walker": 36, "posture": ""}
    drawn = ET.fromstring(replay_svg(GAME, [("one", episode)]))
    assert {(field.get("width"), field.get("height")) for field in drawn.iterfind(".//{*}rect[@class='field']")} == {("12", "4")}

    rotated = VARIANTS["rotated"](GAME, "CliffWalking-v1:rotated")
    assert (rotated.rows, rotated.columns) == (12, 4)
    assert [len(row) for row in rotated.grid(start)] == [4] * 12
    assert rotated.grid(start)[11] == "...@"
    assert state_data(rotated, start)["walker"] == 47
    [turned] = play_episodes(rotated, ScriptedPolicy(player), [(1, 0)])
    assert turned.reward == episode.reward
    drawn = ET.fromstring(replay_svg(rotated, [("one", turned)]))
    assert {(field.get("width"), field.get("height")) for field in drawn.iterfind(".//{*}rect[@class='field']")} == {("4", "12")}


@pytest.mark.parametrize("game", SOLVABLE, ids=lambda game: game.id)
def test_outcomes_have_probabilities_that_sum_to_1_and_step_draws_from_them(game: Any) -> None:
    rng = np.random.default_rng(0)
    start = game.initial_state(stream(3, "initial_state"))
    for action in (*game.actions, None):
        listed: Counter[Any] = Counter()
        for chance, after in game.outcomes(start, action):
            listed[after] += chance
        assert sum(listed.values()) == pytest.approx(1, abs=1e-12)
        drawn = Counter(game.step(start, action, rng) for _ in range(600))
        assert drawn.keys() == listed.keys()
        assert all(abs(drawn[after] / 600 - listed[after]) < 0.1 for after in listed)  # five standard errors


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


def test_no_room_but_games_asks_which_class_a_game_or_a_state_is_of() -> None:
    classes = {"FrozenLake", "LakeState", "Snake", "SnakeState", "Variant"}
    found = []
    for path in sorted((ROOT / "msgrpo_hub").rglob("*.py")):
        if path.parent.name == "games":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                named |= {part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)}
                found += [f"{path.name}:{node.lineno}"] if named & classes else []
    assert not found


def test_snake_is_not_solvable() -> None:
    assert not is_solvable(make_game("Snake-Solo-v1"))
