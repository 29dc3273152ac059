"""Exact lake values against enumeration, simulation and the published means; scripted players against published rewards."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import Chooser, ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, Game, episode_seed, make_game, stream
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.seeds import candidate_seed
from msgrpo_hub.games.snake import APPLE, Snake, SnakeState
from msgrpo_hub.games.solving import best_actions, optimal_value, random_value, solve, values_at
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random, choose_random_safe
from msgrpo_hub.rollout import play_episodes

RNG = np.random.default_rng(0)
"""The reference players draw nothing from it."""


def optimal_actions(game: Game, state: LakeState) -> tuple[str, ...]:
    return best_actions(values_at(game, state), state, game.actions)


def held_out(game: Game, count: int) -> list[int]:
    return [episode_seed(game.id, "test", index) for index in range(count)]


# ---- the values are exact


def enumerated(game: FrozenLake, state: LakeState, best: bool) -> float:
    """The expected return by walking the whole tree of actions and slips: nothing is stored, nothing is shared."""
    if state.terminal or state.turn == game.horizon:
        return 0.0
    values = [
        sum(p * (after.reward + enumerated(game, after.state, best)) for p, after in outcomes)
        for outcomes in (game.outcomes(state, action) for action in game.actions)
    ]
    return max(values) if best else sum(values) / len(values)


def lakes_of(size: int) -> list[tuple[Cell, ...]]:
    """Every set of holes on a small lake, also those that leave no way to the goal."""
    cells = [(r, c) for r in range(size) for c in range(size)][1:-1]
    return [holes for count in range(len(cells) + 1) for holes in combinations(cells, count)]


CASES = [
    *((FrozenLake("lake", size=2, slippery=slippery, horizon=4), holes) for slippery in (False, True) for holes in lakes_of(2)),
    *((FrozenLake("lake", size=3, horizon=5), holes) for holes in lakes_of(3)[::3]),
    *((FrozenLake("lake", size=3, slippery=True, horizon=4), holes) for holes in lakes_of(3)[1::16]),
]


def test_value_iteration_equals_the_tree_of_everything_that_can_happen() -> None:
    for game, holes in CASES:
        start = LakeState(game.size, holes)
        values = solve(game, start)
        assert values.best(start) == pytest.approx(enumerated(game, start, best=True), abs=1e-9)
        assert values.blind(start) == pytest.approx(enumerated(game, start, best=False), abs=1e-9)


def test_values_from_a_later_turn_and_another_cell_equal_the_tree_too() -> None:
    game, holes = FrozenLake("lake", size=3, slippery=True, horizon=9), ((0, 2), (1, 1))
    for cell in [(1, 0), (2, 1), (1, 2)]:
        state = LakeState(3, holes, cell, turn=6)
        values = solve(game, state)
        assert values.best(state) == pytest.approx(enumerated(game, state, best=True), abs=1e-9)
        for action in (*game.actions, None):
            after = [(p, after.reward + enumerated(game, after.state, best=True)) for p, after in game.outcomes(state, action)]
            assert values.of(state, action) == pytest.approx(sum(p * worth for p, worth in after), abs=1e-9)


@given(
    holes=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))).map(lambda cells: tuple(sorted(cells - {(0, 0), (3, 3)}))),
    slippery=st.booleans(),
)
@settings(max_examples=60)
def test_more_turns_never_hurt_and_uniform_play_is_never_better(holes: tuple[Cell, ...], slippery: bool) -> None:
    values = solve(FrozenLake("lake", slippery=slippery, horizon=12), LakeState(4, holes))
    for state in values.rows:
        if state.turn < 11:
            later = replace(state, turn=state.turn + 1)
            assert values.best(state) >= values.best(later) - 1e-12
            assert values.blind(state) >= values.blind(later) - 1e-12
    assert (values.uniform <= values.optimal + 1e-12).all()
    assert values.optimal.min() >= 0
    assert values.optimal.max() <= 1 + 1e-12
    assert not any(state.terminal for state in values.rows)


@pytest.mark.parametrize(("choose", "value"), [(choose_optimal, optimal_value), (choose_random, random_value)])
def test_simulated_play_earns_the_exact_value_within_three_standard_errors(choose: Chooser, value: object) -> None:
    game = make_game("FrozenLake-Slippery-v1")
    episode_keys = [(seed, member) for seed in held_out(game, 500) for member in range(2)]
    rewards = [episode.reward for episode in play_episodes(game, ScriptedPolicy(choose), episode_keys)]
    gaps = np.array(rewards) - [value(game, seed) for seed, _ in episode_keys]  # type: ignore[operator]
    assert abs(gaps.mean()) < 3 * gaps.std(ddof=1) / len(gaps) ** 0.5


@pytest.mark.parametrize(
    ("game_id", "optimal", "uniform"),
    [("FrozenLake-NotSlippery-v1", 1.0, 0.007), ("FrozenLake-Slippery-v1", 0.386, 0.066)],
)
def test_mean_values_over_500_maps_are_the_known_ones(game_id: str, optimal: float, uniform: float) -> None:
    """Over all maps, whatever their split: the test boards of Slippery are harder."""
    game, seeds = make_game(game_id), [candidate_seed(game_id, "test", index) for index in range(500)]
    best = [optimal_value(game, seed) for seed in seeds]
    blind = [random_value(game, seed) for seed in seeds]
    assert np.mean(best) == pytest.approx(optimal, abs=0.04 if optimal < 1 else 1e-12)
    assert np.mean(blind) == pytest.approx(uniform, abs=0.01 if optimal < 1 else 0.0015)


def test_big_slippery_can_be_won_often_enough_to_measure_something() -> None:
    game = make_game("FrozenLake-BigSlippery-v1")
    assert np.mean([optimal_value(game, seed) for seed in held_out(game, 50)]) >= 0.3


# ---- the optimal player


def test_optimal_actions_of_hand_made_lakes() -> None:
    game = FrozenLake("lake", size=3, horizon=4)
    assert optimal_actions(game, LakeState(3, ())) == ("Down", "Right")
    assert optimal_actions(game, LakeState(3, ((1, 0),))) == ("Right",)
    assert optimal_actions(game, LakeState(3, (), turn=1)) == game.actions  # too late: nothing is better than nothing
    assert optimal_actions(replace(game, horizon=6), LakeState(3, ())) == game.actions  # time for a detour


def test_on_slippery_ice_the_optimal_player_steers_off_a_hole_it_might_slip_into() -> None:
    game, state = FrozenLake("lake", size=3, slippery=True, horizon=30), LakeState(3, ((1, 1),), (1, 0))
    assert optimal_actions(game, state) == ("Left",)
    assert choose_optimal(game, state, RNG) == "Left"


def test_the_optimal_player_does_not_dawdle_when_it_has_turns_to_spare() -> None:
    game = make_game("FrozenLake-NotSlippery20-v1")
    for episode in play_episodes(game, ScriptedPolicy(choose_optimal), [(seed, 0) for seed in held_out(game, 100)]):
        lake = game.initial_state(stream(episode.seed, "initial_state"))
        values = solve(game, lake)  # type: ignore[arg-type]
        turns_left = [20 - turn for turn in range(20) if values.best(replace(lake, turn=turn)) > 0]
        assert len(episode.steps) == min(turns_left)


def test_the_optimal_player_always_takes_an_optimal_action() -> None:
    game = make_game("FrozenLake-BigSlippery-v1")
    rng = np.random.default_rng(0)
    for seed in held_out(game, 20):
        state = game.initial_state(stream(seed, "initial_state"))
        while not state.terminal and state.turn < game.horizon:
            assert choose_optimal(game, state, RNG) in optimal_actions(game, state)
            state = game.step(state, choose_random(game, state, rng), rng).state


@pytest.mark.parametrize("game_id", [game_id for game_id in GAMES if game_id.startswith("Snake")])
def test_no_optimum_is_claimed_for_snake_and_greedy_is_named_instead(game_id: str) -> None:
    with pytest.raises(UserError, match=f"{game_id} has no exact optimum: use the player 'greedy'"):
        choose_optimal(make_game(game_id), None, RNG)
    with pytest.raises(UserError, match=f"{game_id} has no exact optimum"):
        random_value(make_game(game_id), 0)


# ---- the greedy player


def test_on_firm_ice_the_greedy_player_always_reaches_the_goal() -> None:
    game = make_game("FrozenLake-NotSlippery-v1")
    episodes = play_episodes(game, ScriptedPolicy(choose_greedy), [(seed, 0) for seed in held_out(game, 200)])
    assert all(episode.success for episode in episodes)


def board(snake: list[Cell], apples: list[Cell], opponent: list[Cell] | None = None) -> tuple[Snake, SnakeState]:
    game = Snake("board", size=5, items=(replace(APPLE, count=len(apples)),), has_opponent=bool(opponent))
    return game, SnakeState(tuple(snake), tuple(opponent or ()), (tuple(sorted(apples)),))


@pytest.mark.parametrize(
    ("why", "snake", "apples", "opponent", "action"),
    [
        ("the nearer of two", [(2, 2)], [(2, 4), (1, 2)], None, "Up"),
        ("of equally near ones the first by action", [(2, 2)], [(2, 3), (2, 1)], None, "Left"),
        ("of two shortest ways the first by action", [(2, 2)], [(3, 3)], None, "Down"),
        ("around its own body", [(2, 2), (2, 3), (1, 3)], [(2, 4)], None, "Down"),
        ("around the opponent", [(2, 0)], [(2, 2)], [(1, 3), (1, 2), (1, 1), (2, 1)], "Down"),
        ("not next to the opponent's head", [(2, 1)], [(2, 2)], [(2, 3)], "Down"),
        ("next to it where all else kills", [(0, 0), (1, 0)], [(4, 4)], [(0, 2)], "Right"),
        ("no way: the first safe action", [(0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0)], [(4, 4)], None, "Left"),
    ],
)
def test_the_greedy_snake_goes(why: str, snake: list[Cell], apples: list[Cell], opponent: list[Cell] | None, action: str) -> None:
    game, state = board(snake, apples, opponent)
    assert choose_greedy(game, state, RNG) == action, why


def test_the_greedy_snake_answers_even_where_every_move_kills() -> None:
    game, state = board([(0, 0), (0, 1), (1, 1), (1, 0)], [(4, 4)])
    assert game.safe_actions(state) == ()
    assert choose_greedy(game, state, RNG) in game.actions


def test_the_greedy_snake_does_not_know_poison() -> None:
    game, state = board([(2, 2)], [(2, 3)])
    poisoned = replace(game, items=(replace(game.items[0], reward=-1.0),))
    assert choose_greedy(poisoned, state, RNG) == choose_greedy(game, state, RNG) == "Right"


# ---- Snake against the published rewards

CHOOSERS: dict[str, Chooser] = {"uniform": choose_random, "random-safe": choose_random_safe, "greedy": choose_greedy}
PUBLISHED = {
    "Snake-Short-v1": (-0.91, 0.18, 1.99),
    "Snake-Standard-v1": (-1.37, 0.38, 4.76),
    "Snake-PoisonApple-v1": (-1.94, -0.89, -4.79),
}
CHANGED_STARTS = 0.04
"""The share of starts that the published engine's spawning changes, each taken as worth up to one standard deviation."""


def rewards_of(game: Game, choose: Chooser, count: int) -> list[float]:
    """Returns without the prompts that a rollout writes: only the rules are measured here."""
    rewards = []
    for seed in held_out(game, count):
        state = game.initial_state(stream(seed, "initial_state"))
        dynamics, sampling = stream(seed, "dynamics", 0), stream(seed, "sampling", 0)
        reward, ended = 0.0, False
        while not ended:
            after = game.step(state, choose(game, state, sampling), dynamics)
            state, reward, ended = after.state, reward + after.reward, after.terminated or after.truncated
        rewards.append(reward)
    return rewards


@pytest.mark.parametrize(
    ("game_id", "player", "published"),
    [(game_id, player, mean) for game_id, means in PUBLISHED.items() for player, mean in zip(CHOOSERS, means, strict=True)],
)
def test_snake_s_reference_players_earn_the_published_rewards(game_id: str, player: str, published: float) -> None:
    rewards = rewards_of(make_game(game_id), CHOOSERS[player], 400)
    spread = np.std(rewards, ddof=1)
    # The published mean is of 1,000 games; its spread is not known and taken to be ours.
    combined = spread * (1 / 1000 + 1 / 400) ** 0.5
    assert np.mean(rewards) == pytest.approx(published, abs=4 * combined + CHANGED_STARTS * spread)
