"""Boards, starts, moves, and what a snake eats; and what holds in every game."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.games import GAMES, Transition, stream
from msgrpo_hub.games.board import DIRECTIONS, inside, neighbour
from msgrpo_hub.games.snake import APPLE, Item, Snake, SnakeState
from tests.games.snakes import ONE_APPLE, duel, play, solo

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
@settings(max_examples=30)
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
