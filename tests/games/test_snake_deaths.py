"""How a snake dies, and what the opponent does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.snake import SnakeState
from tests.games.snakes import Dice, duel, play, solo

LEFT, DOWN, RIGHT, UP = range(4)
FAR: tuple[tuple[Cell, ...], ...] = (((4, 4),),)
"""One apple out of the way of what a case is about."""


# ---- dying


def test_equal_heads_kill_both() -> None:
    state = SnakeState(snake=((2, 1),), opponent=((2, 3),), items=FAR)
    after = play(duel(), state, "Right", LEFT)
    assert (after.state.alive, after.state.opponent_alive) == (False, False)
    assert (after.reward, after.terminated, after.truncated) == (-2.0, True, False)
    assert after.state.items == FAR


def test_two_heads_on_one_apple_kill_both_and_nobody_eats() -> None:
    state = SnakeState(snake=((2, 1),), opponent=((2, 3),), items=(((2, 2),),))
    after = play(duel(), state, "Right", LEFT)
    assert (after.state.alive, after.state.opponent_alive, after.reward) == (False, False, -2.0)
    assert after.state.items == (((2, 2),),)


def test_a_swap_of_heads_kills_both() -> None:
    state = SnakeState(snake=((2, 1),), opponent=((2, 2),), items=FAR)
    after = play(duel(), state, "Right", LEFT)
    assert (after.state.alive, after.state.opponent_alive, after.reward) == (False, False, -2.0)


def test_the_cell_of_the_own_tail_kills_although_the_tail_would_leave_it() -> None:
    state = SnakeState(snake=((1, 1), (1, 2), (2, 2), (2, 1)), opponent=(), items=FAR)
    after = play(solo(), state, "Down")
    assert (after.state.alive, after.reward, after.terminated) == (False, -2.0, True)
    assert "Down" not in solo().legal_actions(state)


def test_the_cell_of_the_opponent_s_tail_kills_the_player_alone() -> None:
    state = SnakeState(snake=((2, 1),), opponent=((3, 2), (3, 1)), items=FAR)
    game = duel()
    after = play(game, state, "Down", 1)
    assert (after.state.alive, after.state.opponent_alive, after.reward) == (False, True, -2.0)
    assert "Down" in game.legal_actions(state)
    assert "Down" not in game.safe_actions(state)


def test_the_player_s_cell_before_the_move_kills_the_opponent_although_the_player_leaves_it() -> None:
    state = SnakeState(snake=((2, 1),), opponent=((2, 2),), items=FAR)
    after = play(duel(), state, "Up", LEFT)
    assert (after.state.alive, after.state.opponent_alive) == (True, False)
    assert after.state.snake == ((1, 1),)


@pytest.mark.parametrize(("cell", "action"), [((2, 0), "Left"), ((4, 2), "Down"), ((2, 4), "Right"), ((0, 2), "Up")])
def test_every_wall_kills(cell: Cell, action: str) -> None:
    game = solo(death_reward=-1.0)
    after = play(game, SnakeState((cell,), (), FAR), action)
    assert (after.state.alive, after.reward, after.terminated) == (False, -1.0, True)
    assert after.state.snake == (cell,)
    assert not game.succeeded(after.state)


def test_turning_back_into_the_neck_kills() -> None:
    after = play(solo(), SnakeState(((2, 2), (2, 1)), (), FAR), "Left")
    assert not after.state.alive


def test_the_opponent_s_death_ends_the_episode_and_the_player_has_succeeded() -> None:
    game = duel()
    state = SnakeState(snake=((1, 0),), opponent=((0, 0), (0, 1)), items=FAR)
    dice = Dice(0)
    after = game.step(state, "Right", dice)  # type: ignore[arg-type]
    assert dice.sides == [1]  # down, into the cell that the player leaves, is the only move off the walls and itself
    assert (after.state.alive, after.state.opponent_alive) == (True, False)
    assert (after.reward, after.terminated, after.truncated) == (0.0, True, False)
    assert game.succeeded(after.state)


def test_death_on_the_last_turn_is_termination_and_survival_is_truncation() -> None:
    game, state = solo(horizon=3), SnakeState(((2, 0),), (), FAR, turn=2)
    died, lived = play(game, state, "Left"), play(game, state, "Right")
    assert (died.terminated, died.truncated) == (True, False)
    assert (lived.terminated, lived.truncated) == (False, True)


# ---- the opponent


def test_the_opponent_avoids_walls_and_itself_but_not_the_player() -> None:
    game = duel()
    for opponent, player, moves in [
        (((0, 0),), (4, 0), 2),
        (((0, 0), (1, 0)), (4, 0), 1),
        (((2, 2),), (4, 0), 4),
        (((2, 2), (2, 1)), (4, 0), 3),
        (((2, 2), (2, 1)), (1, 2), 3),
    ]:
        dice = Dice(0)
        game.step(SnakeState((player,), opponent, FAR), None, dice)  # type: ignore[arg-type]
        assert dice.sides == [moves]


def test_an_opponent_that_is_walled_in_by_itself_dies() -> None:
    state = SnakeState(((4, 0),), ((0, 0), (0, 1), (1, 1), (1, 0)), FAR)
    for roll in range(4):
        assert not play(duel(), state, None, roll).state.opponent_alive


def test_the_opponent_eats_and_grows_and_the_player_gets_nothing() -> None:
    state = SnakeState(((4, 0),), ((2, 2),), (((2, 3),),))
    after = play(duel(), state, None, RIGHT)
    assert after.state.opponent == ((2, 3), (2, 2))
    assert (after.reward, after.state.items) == (0.0, (((0, 0),),))


def test_no_action_holds_the_snake_while_the_opponent_moves_on_or_into_it() -> None:
    state = SnakeState(((2, 1), (3, 1)), ((2, 3),), FAR)
    passed = play(duel(), state, None, UP)
    assert (passed.state.snake, passed.state.opponent) == (state.snake, ((1, 3),))
    struck = play(duel(), replace(state, opponent=((2, 2),)), None, LEFT)
    assert (struck.state.alive, struck.state.opponent_alive, struck.reward) == (True, False, 0.0)
