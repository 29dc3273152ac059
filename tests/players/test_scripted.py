"""Scripted players on hand-made boards, and against published rewards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Chooser, ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, Game, Split, episode_seed, make_game, stream
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import APPLE, Snake, SnakeState
from msgrpo_hub.games.solving import best_actions, solve, start_values, values_at
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random, choose_random_safe
from msgrpo_hub.rollout import play_episodes

RNG = np.random.default_rng(0)


def optimal_actions(game: Game, state: LakeState) -> tuple[str, ...]:
    return best_actions(values_at(game, state), state, game.actions)


def held_out(game: Game, count: int) -> list[int]:
    return [episode_seed(game.id, "test", index) for index in range(count)]


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


@pytest.mark.parametrize("game_id", [game_id for game_id in GAMES if game_id.startswith("Snake")])
def test_no_optimum_is_claimed_for_snake_and_greedy_is_named_instead(game_id: str) -> None:
    with pytest.raises(UserError, match=f"{game_id} has no exact optimum: use the player 'greedy'"):
        choose_optimal(make_game(game_id), None, RNG)
    with pytest.raises(UserError, match=f"{game_id} has no exact optimum"):
        start_values(make_game(game_id), 0)


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


CHOOSERS: dict[str, Chooser] = {"uniform": choose_random, "random-safe": choose_random_safe, "greedy": choose_greedy}
PUBLISHED = {
    "Snake-Short-v1": (-0.91, 0.18, 1.99),
    "Snake-Standard-v1": (-1.37, 0.38, 4.76),
    "Snake-PoisonApple-v1": (-1.94, -0.89, -4.79),
}
CHANGED_STARTS = 0.04
"""The share of starts that the published engine's spawning changes, each taken as worth up to one standard deviation."""


def rewards_of(game_id: str, choose: Chooser, count: int, split: Split = "test") -> list[float]:
    """Returns of single episodes, without the prompts of a rollout."""
    game, rewards = make_game(game_id), []
    for seed in (episode_seed(game_id, split, index) for index in range(count)):
        state, ended, reward = game.initial_state(stream(seed, "initial_state")), False, 0.0
        dynamics, sampling = stream(seed, "dynamics", 0), stream(seed, "sampling", 0)
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
    rewards = rewards_of(game_id, CHOOSERS[player], 400)
    spread = np.std(rewards, ddof=1)
    # The published mean is over 1,000 games; we use our own spread for it.
    combined = spread * (1 / 1000 + 1 / 400) ** 0.5
    assert np.mean(rewards) == pytest.approx(published, abs=4 * combined + CHANGED_STARTS * spread)
