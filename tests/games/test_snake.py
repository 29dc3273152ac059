"""Snake's rules on boards worked by hand, and what no sequence of moves can break."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.games import GAMES, Transition, stream
from msgrpo_hub.games.board import DIRECTIONS, Cell, inside, neighbour
from msgrpo_hub.games.snake import APPLE, Item, Snake, SnakeState

LEFT, DOWN, RIGHT, UP = range(4)
ONE_APPLE = replace(APPLE, count=1)
FAR: tuple[tuple[Cell, ...], ...] = (((4, 4),),)
"""One apple out of the way of what a case is about."""


class Dice:
    """A generator with known rolls: which of its open cells the opponent takes. Items reappear on the first free cells."""

    def __init__(self, *rolls: int) -> None:
        self.rolls, self.sides = list(rolls), list[int]()

    def integers(self, sides: int) -> int:
        self.sides.append(sides)
        return self.rolls.pop(0)

    def permutation(self, count: int) -> Any:
        return np.arange(count)


def play(game: Snake, state: SnakeState, action: str | None, *rolls: int) -> Transition[SnakeState]:
    return game.step(state, action, Dice(*rolls))  # type: ignore[arg-type]


def duel(**changes: Any) -> Snake:
    return replace(Snake("duel", size=5, items=(ONE_APPLE,)), **changes)


def solo(*items: Item, **changes: Any) -> Snake:
    return replace(Snake("solo", size=5, items=items or (ONE_APPLE,), has_opponent=False), **changes)


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


# ---- eating


def test_an_eaten_apple_gives_one_grows_the_snake_by_one_and_reappears_elsewhere() -> None:
    state = SnakeState(((1, 1),), (), (((1, 2),),))
    after = play(solo(), state, "Right")
    assert after.reward == 1.0
    assert after.state.snake == ((1, 2), (1, 1))
    assert after.state.items == (((0, 0),),)
    onward = play(solo(), after.state, "Right")
    assert onward.state.snake == ((1, 3), (1, 2))


def test_what_reappears_lands_on_no_snake_and_no_other_item() -> None:
    game = solo(replace(APPLE, count=2), size=3)
    state = SnakeState(((0, 1), (0, 0)), (), (((0, 2), (1, 0)),))
    assert play(game, state, "Right").state.items == (((1, 0), (1, 1)),)


def test_where_an_apple_reappears_every_free_cell_is_equally_likely() -> None:
    game, state = solo(size=3), SnakeState(((0, 0),), (), (((0, 1),),))
    rng = np.random.default_rng(0)
    cells = [game.step(state, "Right", rng).state.items[0][0] for _ in range(7000)]
    counts = [cells.count((r, c)) for r in range(3) for c in range(3)]
    assert counts[:2] == [0, 0]
    # Five standard deviations of a count of 7000 draws at 1/7.
    assert all(abs(count - 1000) < 150 for count in counts[2:])


def test_on_a_full_board_nothing_reappears() -> None:
    game = solo(replace(APPLE, count=2), size=2)
    after = play(game, SnakeState(((0, 0), (0, 1)), (), (((1, 0), (1, 1)),)), "Down")
    assert (after.state.snake, after.state.items) == (((1, 0), (0, 0), (0, 1)), (((1, 1),),))


def test_poison_costs_one_and_grows_like_an_apple_and_the_rules_say_so() -> None:
    game = solo(replace(ONE_APPLE, reward=-1.0))
    after = play(game, SnakeState(((1, 1),), (), (((1, 2),),)), "Right")
    assert (after.reward, after.state.snake) == (-1.0, ((1, 2), (1, 1)))
    assert any("An apple gives -1 " in rule for rule in game.rules)


def test_fire_costs_one_and_does_not_grow() -> None:
    fire = Item("fire", "F", 1, -1.0, grows=False)
    after = play(solo(ONE_APPLE, fire), SnakeState(((1, 1),), (), (((4, 4),), ((1, 2),))), "Right")
    assert (after.reward, after.state.snake) == (-1.0, ((1, 2),))
    assert after.state.items == (((4, 4),), ((0, 0),))


def test_each_kind_gives_its_own_reward() -> None:
    game = GAMES["Snake-Banana-v1"]
    state = SnakeState(((5, 5),), ((0, 0),), (((5, 6), (9, 8), (9, 9)), ((5, 4), (9, 6), (9, 7))))
    assert game.step(state, "Right", np.random.default_rng(0)).reward == 1.0
    assert game.step(state, "Left", np.random.default_rng(0)).reward == 10.0


# ---- down hill


def test_down_hill_every_item_rolls_one_cell_and_rests_on_the_last_row() -> None:
    game = solo(replace(APPLE, count=2), down_hill=True)
    after = play(game, SnakeState(((0, 0),), (), (((1, 3), (3, 2)),)), None)
    assert after.state.items == (((2, 3), (4, 2)),)
    assert play(game, after.state, None).state.items == (((3, 3), (4, 2)),)


def test_down_hill_a_stack_rolls_together_and_stops_on_a_snake() -> None:
    game = solo(replace(APPLE, count=2), down_hill=True)
    rolling = SnakeState(((0, 0),), (), (((1, 3), (2, 3)),))
    assert play(game, rolling, None).state.items == (((2, 3), (3, 3)),)
    resting = SnakeState(((3, 3),), (), (((1, 3), (2, 3)),))
    assert play(game, resting, None).state.items == (((1, 3), (2, 3)),)


def test_down_hill_an_item_that_rolls_into_the_head_s_way_is_eaten() -> None:
    game = solo(down_hill=True)
    assert play(game, SnakeState(((3, 1),), (), (((2, 2),),)), "Right").reward == 1.0
    assert play(game, SnakeState(((2, 1),), (), (((2, 2),),)), "Right").reward == 0.0


# ---- what the board shows


def test_observation_of_a_hand_made_board() -> None:
    state = SnakeState(((1, 1), (1, 0)), ((3, 3), (3, 4)), (((0, 2),),))
    assert duel().observe(state) == (
        "Your head: (1, 1)\nYour body: (1, 0)\nOpponent head: (3, 3)\nOpponent body: (3, 4)\nApples: (0, 2)\n"
        "Grid:\n. . A . .\n# @ . . .\n. . . . .\n. . . X x\n. . . . ."
    )


def test_start_cells_are_distinct_and_cover_the_board_evenly() -> None:
    game = Snake("board", size=4, items=(replace(APPLE, count=2),))
    starts = [game.initial_state(stream(seed, "initial_state")) for seed in range(1600)]
    assert all(len({*s.snake, *s.opponent, *s.items[0]}) == 4 for s in starts)
    for pick in (lambda s: s.snake[0], lambda s: s.opponent[0]):
        counts = [[pick(s) for s in starts].count((r, c)) for r in range(4) for c in range(4)]
        # Five standard deviations of a count of 1600 draws at 1/16.
        assert all(abs(count - 100) < 50 for count in counts)


# ---- what always holds

variants = [game for game in GAMES.values() if isinstance(game, Snake)]


@pytest.mark.parametrize("game", variants, ids=[game.id for game in variants])
@given(seed=st.integers(0, 2**63 - 1), turns=st.lists(st.integers(0, 4), min_size=20, max_size=20), careful=st.booleans())
@settings(max_examples=30, deadline=None)
def test_snakes_stay_whole_apart_and_on_the_board_and_items_are_conserved(
    game: Snake, seed: int, turns: list[int], careful: bool
) -> None:
    state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    for turn in turns:
        options = (game.safe_actions(state) or game.actions) if careful else (*game.actions, None)
        after = game.step(state, options[turn % len(options)], dynamics)
        check(game, state, after)
        if after.terminated or after.truncated:
            break
        state = after.state


def check(game: Snake, before: SnakeState, after: Transition[SnakeState]) -> None:
    state = after.state
    things = [*state.snake, *state.opponent, *(cell for cells in state.items for cell in cells)]
    assert len(set(things)) == len(things)
    assert all(inside(cell, game.rows, game.columns) for cell in things)
    assert [len(cells) for cells in state.items] == [item.count for item in game.items]
    assert all(list(cells) == sorted(cells) for cells in state.items)
    for body, old, alive in [
        (state.snake, before.snake, state.alive),
        (state.opponent, before.opponent, state.opponent_alive),
    ]:
        assert all(b in {neighbour(a, action) for action in DIRECTIONS} for a, b in pairwise(body))
        assert len(body) - len(old) in (0, 1)
        assert alive or body == old
    assert bool(state.opponent) == game.has_opponent
    assert after.terminated == (not state.alive or not state.opponent_alive)
    assert state.alive or after.reward == game.death_reward
