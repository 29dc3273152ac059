"""gymnasium's toy text as text games: tables, values and episodes against gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from msgrpo_hub.games import stream
from msgrpo_hub.games.registry import TABLE_GAMES
from msgrpo_hub.games.solving import solve, start_values, values_at
from msgrpo_hub.games.table_game import TableState

CLIFF, TAXI = TABLE_GAMES.values()
both = pytest.mark.parametrize(("game", "env"), [(CLIFF, CliffWalkingEnv), (TAXI, TaxiEnv)], ids=["cliff", "taxi"])


def value_iteration(env: Any, horizon: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Values of optimal and of random play from every state of gymnasium's `P`."""
    best, blind = np.zeros(len(env.P)), np.zeros(len(env.P))
    for _ in range(horizon):
        sums = [
            [
                [sum(p * (r + (0 if ended else v[s])) for p, s, r, ended in ways) for ways in actions.values()]
                for v in (best, blind)
            ]
            for actions in env.P.values()
        ]
        best, blind = np.array([max(b) for b, _ in sums]), np.array([sum(u) / len(u) for _, u in sums])
    return best, blind


@both
def test_values_are_those_of_value_iteration_on_gymnasiums_table(game: Any, env: Any) -> None:
    best, blind = value_iteration(env(), game.horizon)
    for seed in range(8):
        start = game.initial_state(stream(seed, "initial_state"))
        values = solve(game, start)
        assert values.best(start) == pytest.approx(best[start.position], abs=1e-9)
        assert values.blind(start) == pytest.approx(blind[start.position], abs=1e-9)


def test_the_cliff_costs_13_turns_and_a_taxi_needs_the_turns_of_its_way() -> None:
    assert start_values(CLIFF, 0)[0] == -13
    [(_, after)] = CLIFF.outcomes(TableState(2 * 12 + 11, CLIFF.horizon - 1), "Down")
    assert (after.terminated, after.truncated) == (True, False)  # the goal on the last turn
    # From (0, 0), the stand R: pick up, down to (2, 0), right to (2, 4), up to the stand G: 1 + 2 + 4 + 2 turns. Then 20.
    start = TableState(((0 * 5 + 0) * 5 + 0) * 4 + 1)
    assert TAXI.observe(start).splitlines()[:3] == ["Taxi: (0, 0)", "Passenger: at R (0, 0)", "Destination: G (0, 4)"]
    assert values_at(TAXI, start).best(start) == -9 + 20


@both
def test_episodes_are_gymnasiums_move_by_move(game: Any, env: Any) -> None:
    theirs = env()
    for seed in range(4):
        rng, state = np.random.default_rng(seed), game.initial_state(stream(seed, "initial_state"))
        theirs.reset(seed=seed)
        theirs.s = state.position
        ended = False
        while not ended:
            action = int(rng.integers(len(game.actions)))
            position, reward, terminated, _, _ = theirs.step(action)
            after = game.step(state, game.actions[action], rng)
            assert (after.state.position, after.reward, after.terminated) == (position, reward, terminated)
            state, ended = after.state, after.terminated or after.truncated


def test_names_of_actions_match_their_moves() -> None:
    at = TableState(1 * 12 + 5)
    for action, (rows, columns) in {"Up": (-1, 0), "Right": (0, 1), "Down": (1, 0), "Left": (0, -1)}.items():
        assert divmod(CLIFF.outcomes(at, action)[0][1].state.position, 12) == (1 + rows, 5 + columns)
    middle = TableState(((2 * 5 + 2) * 5 + 4) * 4 + 0)
    for action, cell in {"South": "(3, 2)", "North": "(1, 2)", "East": "(2, 3)", "West": "(2, 1)"}.items():
        assert TAXI.observe(TAXI.outcomes(middle, action)[0][1].state).startswith(f"Taxi: {cell}")


def test_taxi_shows_its_walls_passenger_destination_and_stands() -> None:
    for row in range(5):
        for column in range(4):
            state = TableState(((row * 5 + column) * 5 + 4) * 4)
            wall = TAXI.grid(state)[row][2 * column + 1] == "|"
            assert ("East" not in TAXI.legal_actions(state)) == wall
            assert (f"({row}, {column})" in TAXI.observe(state).partition("right of: ")[2].partition("\n")[0]) == wall
    state = TableState(((2 * 5 + 1) * 5 + 2) * 4 + 3)
    assert TAXI.grid(state) == ["R:.|.:.:G", ".:.|.:.:.", ".:@:.:.:.", ".|.:.|.:.", "P|.:.|D:."]
    assert "Passenger: at Y (4, 0)" in TAXI.observe(state)
