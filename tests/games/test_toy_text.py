"""gymnasium's toy text as text games: their tables, values and episodes against gymnasium itself."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import board_of, episode_seed, make_game, splits_of, stream
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.games.registry import TOY_TEXT
from msgrpo_hub.games.solving import optimal_value, solve, values_at
from msgrpo_hub.games.table_game import TableState
from msgrpo_hub.players.scripted import choose_optimal, choose_random
from msgrpo_hub.rollout import play_episodes

CLIFF, TAXI = TOY_TEXT.values()
FROM_P = [(CLIFF, CliffWalkingEnv), (TAXI, TaxiEnv)]


def value_iteration(env: Any, horizon: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Values of optimal and of random play from every state of gymnasium's `P`, with so many turns left."""
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


@pytest.mark.parametrize(("game", "env"), FROM_P, ids=lambda value: getattr(value, "id", ""))
def test_values_are_those_of_value_iteration_on_gymnasiums_table(game: Any, env: Any) -> None:
    best, blind = value_iteration(env(), game.horizon)
    for seed in range(8):
        start = game.initial_state(stream(seed, "initial_state"))
        values = solve(game, start)
        assert values.best(start) == pytest.approx(best[start.position], abs=1e-9)
        assert values.blind(start) == pytest.approx(blind[start.position], abs=1e-9)


def test_the_cliff_costs_13_turns_and_a_taxi_needs_what_its_way_needs() -> None:
    assert optimal_value(CLIFF, 0) == -13
    # From (0, 0), the stand R: pick up, down to (2, 0), right to (2, 4), up to the stand G: 1 + 2 + 4 + 2 turns. Then 20.
    start = TableState(((0 * 5 + 0) * 5 + 0) * 4 + 1)
    assert TAXI.observe(start).splitlines()[:3] == ["Taxi: (0, 0)", "Passenger: at R (0, 0)", "Destination: G (0, 4)"]
    assert values_at(TAXI, start).best(start) == -9 + 20


@pytest.mark.parametrize(("game", "env"), FROM_P, ids=lambda value: getattr(value, "id", ""))
def test_episodes_are_gymnasiums_move_by_move(game: Any, env: Any) -> None:
    theirs = env()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theirs.reset(seed=seed)
        state = game.initial_state(stream(seed, "initial_state"))
        theirs.s = state.position
        for _ in range(game.horizon):
            action = int(rng.integers(len(game.actions)))
            position, reward, ended, _, _ = theirs.step(action)
            after = game.step(state, game.actions[action], rng)
            assert (after.state.position, after.reward, after.terminated) == (position, reward, ended)
            if ended or after.truncated:
                break
            state = after.state


def test_names_of_actions_say_where_they_lead() -> None:
    moves = {"Up": (-1, 0), "Right": (0, 1), "Down": (1, 0), "Left": (0, -1)}
    at = TableState(1 * 12 + 5)
    for action, (rows, columns) in moves.items():
        assert divmod(CLIFF.outcomes(at, action)[0][1].state.position, 12) == (1 + rows, 5 + columns)
    middle = TableState(((2 * 5 + 2) * 5 + 4) * 4 + 0)
    for action, cell in {"South": "(3, 2)", "North": "(1, 2)", "East": "(2, 3)", "West": "(2, 1)"}.items():
        assert TAXI.observe(TAXI.outcomes(middle, action)[0][1].state).startswith(f"Taxi: {cell}")


def test_the_walls_that_taxi_shows_are_those_that_stop_it() -> None:
    for row in range(5):
        for column in range(4):
            state = TableState(((row * 5 + column) * 5 + 4) * 4)
            wall = TAXI.grid(state)[row][2 * column + 1] == "|"
            assert ("East" not in TAXI.legal_actions(state)) == wall
            assert (f"({row}, {column})" in TAXI.observe(state).partition("right of: ")[2].partition("\n")[0]) == wall


def test_taxi_shows_passenger_destination_and_stands() -> None:
    state = TableState(((2 * 5 + 1) * 5 + 2) * 4 + 3)
    assert TAXI.grid(state) == ["R:.|.:.:G", ".:.|.:.:.", ".:@:.:.:.", ".|.:.|.:.", "P|.:.|D:."]
    assert "Passenger: at Y (4, 0)" in TAXI.observe(state)
    assert "Passenger: in the taxi" in TAXI.observe(TableState(((2 * 5 + 1) * 5 + 4) * 4 + 3))


def test_no_start_of_training_is_a_start_of_the_test() -> None:
    for game in (TAXI,):
        boards = {}
        for split in ("train", "validation", "test"):
            seeds = [episode_seed(game.id, split, index) for index in range(60)]
            boards[split] = {board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds}
        assert len(boards["test"]) > 15
        assert not boards["test"] & (boards["train"] | boards["validation"])
        assert not boards["train"] & boards["validation"]
    assert not splits_of(CLIFF.id).are_apart  # one start, which all splits share


@pytest.mark.parametrize("game", TOY_TEXT.values(), ids=TOY_TEXT)
def test_equal_seeds_give_equal_episodes_and_returns_stay_in_their_range(game: Any) -> None:
    for player in (choose_random, choose_optimal):
        first, second = (play_episodes(game, ScriptedPolicy(player), [(seed, 0) for seed in range(6)]) for _ in range(2))
        assert [[step.observation for step in episode.steps] for episode in first] == [
            [step.observation for step in episode.steps] for episode in second
        ]
        low, high = game.return_range
        assert all(low <= episode.reward <= high for episode in first)


@pytest.mark.parametrize("game_id", TOY_TEXT)
def test_gymnasium_plays_them_as_text(game_id: str) -> None:
    env: Any = gymnasium.make(f"{TextGameEnv.__module__}:msgrpo_hub/{game_id}")
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation), set(observation) - set(env.observation_space.character_set)
    assert info["legal_actions"]
    assert make_game(game_id).observe(env.unwrapped.state) == observation
