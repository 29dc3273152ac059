"""The planner: plans by hand on small boards, and above the greedy player on every Snake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Chooser
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, make_game
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.snake import APPLE, Item, Snake, SnakeState
from msgrpo_hub.players.planner import choose_planner, move_values
from msgrpo_hub.players.scripted import choose_greedy, choose_random_safe
from tests.players.test_scripted import rewards_of

RNG = np.random.default_rng(0)

POISON = Item("poison", "P", 1, -1.0)
PLUM = Item("plum", "U", 1, 10.0)
THREE_AND_ONE = {APPLE: [(0, 0), (0, 3), (0, 4), (1, 4)]}


def board(
    snake: list[Cell],
    items: dict[Item, list[Cell]],
    opponent: list[Cell] | None = None,
    horizon: int = 8,
    down_hill: bool = False,
) -> tuple[Snake, SnakeState]:
    kinds = tuple(replace(item, count=len(cells)) for item, cells in items.items())
    game = Snake("board", size=5, horizon=horizon, items=kinds, has_opponent=bool(opponent), down_hill=down_hill)
    return game, SnakeState(tuple(snake), tuple(opponent or ()), tuple(tuple(sorted(cells)) for cells in items.values()))


@pytest.mark.parametrize(
    ("why", "position", "action"),
    [
        ("to the only apple", board([(2, 2)], {APPLE: [(2, 4)]}), "Right"),
        ("to three apples rather than to the nearest", board([(0, 1)], THREE_AND_ONE, horizon=5), "Right"),
        ("to a plum where there is time for one", board([(2, 2)], {APPLE: [(2, 1)], PLUM: [(2, 4)]}, horizon=2), "Right"),
        ("to the apple on the way, then to the plum", board([(2, 1)], {APPLE: [(3, 1)], PLUM: [(3, 3)]}, horizon=3), "Down"),
        ("around the poison", board([(2, 0)], {APPLE: [(2, 2)], POISON: [(2, 1)]}), "Down"),
        ("through the poison to a plum behind it", board([(0, 0)], {PLUM: [(0, 2)], POISON: [(0, 1)]}, horizon=2), "Right"),
        ("over poison rather than into a wall", board([(0, 0)], {POISON: [(0, 1), (1, 0)]}), "Down"),
        ("into poison where all else kills", board([(0, 0), (1, 0)], {POISON: [(0, 1)]}, horizon=1), "Right"),
        ("not into a pocket", board([(1, 0), (1, 1), (0, 1), (0, 2), (0, 3)], {APPLE: [(0, 0)]}), "Down"),
        ("into the pocket on the last turn", board([(1, 0), (1, 1), (0, 1), (0, 2), (0, 3)], {APPLE: [(0, 0)]}, horizon=1), "Up"),
        ("not where the opponent may go too", board([(2, 1)], {POISON: []}, [(2, 3)], horizon=1), "Left"),
        ("not straight back", board([(2, 2), (2, 3)], {APPLE: [(2, 4)]}, horizon=4), "Down"),
        ("to where a rolling apple will be", board([(2, 0)], {APPLE: [(0, 2)]}, horizon=2, down_hill=True), "Right"),
    ],
)
def test_the_planner_goes(why: str, position: tuple[Snake, SnakeState], action: str) -> None:
    game, state = position
    assert choose_planner(game, state, RNG) == action, why


def test_the_value_of_a_plan_is_what_it_will_eat() -> None:
    # One turn left: an apple is worth 1, an empty cell 0, the wall and the opponent's body −2.
    game, state = board([(0, 1)], {APPLE: [(0, 0)]}, [(3, 3), (2, 3), (1, 3), (1, 2), (1, 1)], horizon=1)
    assert move_values(game, state).tolist() == pytest.approx([1.0, -2.0, 0.0, -2.0])


def test_meeting_the_opponents_head_counts_by_its_chance() -> None:
    # The opponent in its corner has two ways, so either is entered with chance 1/2.
    game, state = board([(1, 1)], {POISON: []}, [(0, 0)], horizon=1)
    assert move_values(game, state).tolist() == pytest.approx([-1.0, 0.0, 0.0, -1.0])


def test_an_apple_on_the_way_of_a_snake_that_comes_from_below_does_not_roll_past_it() -> None:
    game, state = board([(3, 2)], {APPLE: [(2, 2)]}, horizon=1, down_hill=True)
    assert move_values(game, state).tolist() == pytest.approx([0.0, 0.0, 0.0, 1.0])
    assert game.step(state, "Up", RNG).reward == 1.0


@pytest.mark.parametrize("choose", [choose_planner, choose_greedy])
def test_a_player_answers_even_where_every_move_kills(choose: Chooser) -> None:
    game, state = board([(0, 0), (0, 1), (1, 1), (1, 0)], {APPLE: [(4, 4)]})
    assert game.safe_actions(state) == ()
    assert choose(game, state, RNG) in game.actions


@pytest.mark.parametrize("game_id", [game_id for game_id, game in GAMES.items() if not isinstance(game, Snake)])
def test_the_planner_plays_no_lake_and_names_the_player_that_does(game_id: str) -> None:
    game = make_game(game_id)
    with pytest.raises(UserError, match=f"the planner plays only Snake, not {game_id}: use the player 'optimal'"):
        choose_planner(game, game.initial_state(RNG), RNG)


@pytest.mark.slow
@pytest.mark.parametrize("game_id", [game_id for game_id, game in GAMES.items() if isinstance(game, Snake)])
def test_the_planner_is_above_every_other_scripted_player(game_id: str) -> None:
    planner = np.array(rewards_of(game_id, choose_planner, 15, "validation"))
    for choose in (choose_random_safe, choose_greedy):
        assert np.mean(planner - rewards_of(game_id, choose, 15, "validation")) > 0
