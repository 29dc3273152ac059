"""Snake: eating, rolling items, deaths and the opponent on hand-made boards; and invariants in every game."""

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

ONE_APPLE, TWO_APPLES = replace(APPLE, count=1), replace(APPLE, count=2)
FIRE = Item("fire", "F", 1, -1.0, grows=False)
LEFT, DOWN, RIGHT, UP = range(4)
FAR: tuple[tuple[Cell, ...], ...] = (((4, 4),),)
"""One apple that no case reaches."""


class Dice:
    """A generator with given rolls for the opponent's open cells. Items reappear on the first free cells."""

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


@pytest.mark.parametrize(
    ("items", "cells", "reward", "snake", "left"),
    [
        ([ONE_APPLE], [((1, 2),)], 1.0, ((1, 2), (1, 1)), [((0, 0),)]),
        ([replace(ONE_APPLE, reward=-1.0)], [((1, 2),)], -1.0, ((1, 2), (1, 1)), [((0, 0),)]),  # poison grows the snake too
        ([ONE_APPLE, FIRE], [((4, 4),), ((1, 2),)], -1.0, ((1, 2),), [((4, 4),), ((0, 0),)]),  # fire does not
    ],
)
def test_an_eaten_item_gives_its_reward_and_reappears_elsewhere(
    items: list[Item], cells: list[tuple[Cell, ...]], reward: float, snake: tuple[Cell, ...], left: list[tuple[Cell, ...]]
) -> None:
    game = solo(*items)
    after = play(game, SnakeState(((1, 1),), (), tuple(cells)), "Right")
    assert (after.reward, after.state.snake, after.state.items) == (reward, snake, tuple(left))
    assert len(play(game, after.state, "Right").state.snake) == len(snake)  # without an item it only moves
    assert any(f"{items[-1].name} gives {reward:g}" in rule for rule in game.rules)


def test_an_item_reappears_on_a_free_cell_if_there_is_one() -> None:
    state = SnakeState(((0, 1), (0, 0)), (), (((0, 2), (1, 0)),))
    assert play(solo(TWO_APPLES, size=3), state, "Right").state.items == (((1, 0), (1, 1)),)
    full = play(solo(TWO_APPLES, size=2), SnakeState(((0, 0), (0, 1)), (), (((1, 0), (1, 1)),)), "Down")
    assert (full.state.snake, full.state.items) == (((1, 0), (0, 0), (0, 1)), (((1, 1),),))


@pytest.mark.parametrize(
    ("snake", "before", "after"),
    [
        ((0, 0), ((1, 3), (3, 2)), ((2, 3), (4, 2))),
        ((0, 0), ((2, 3), (4, 2)), ((3, 3), (4, 2))),  # the last row holds an item
        ((0, 0), ((1, 3), (2, 3)), ((2, 3), (3, 3))),  # a stack rolls together
        ((3, 3), ((1, 3), (2, 3)), ((1, 3), (2, 3))),  # a snake stops it
    ],
)
def test_down_hill_items_roll_one_cell(snake: Cell, before: tuple[Cell, ...], after: tuple[Cell, ...]) -> None:
    assert play(solo(TWO_APPLES, down_hill=True), SnakeState((snake,), (), (before,)), None).state.items == (after,)


NARROW = ((0, 0), (0, 1))
"""An opponent whose only move is Down."""


@pytest.mark.parametrize(
    ("snake", "opponent", "action", "roll", "alive"),
    [
        (((2, 1),), ((2, 3),), "Right", LEFT, (False, False)),  # equal heads
        (((2, 1),), ((2, 2),), "Right", LEFT, (False, False)),  # a swap of heads
        (((2, 1),), ((3, 2), (3, 1)), "Down", 1, (False, True)),  # the opponent's tail
        (((2, 1),), ((2, 2),), "Up", LEFT, (True, False)),  # the opponent enters the cell that the player leaves
        (((1, 0),), NARROW, "Right", 0, (True, False)),
        (((2, 1), (3, 1)), ((2, 2),), None, LEFT, (True, False)),  # the player does not move
        (((2, 1), (3, 1)), ((2, 3),), None, UP, (True, True)),
    ],
)
def test_two_snakes_meet(
    snake: tuple[Cell, ...], opponent: tuple[Cell, ...], action: str | None, roll: int, alive: tuple[bool, bool]
) -> None:
    game = duel()
    after = play(game, SnakeState(snake, opponent, FAR), action, roll)
    assert (after.state.alive, after.state.opponent_alive) == alive
    assert (after.reward, after.terminated, after.truncated) == (0.0 if alive[0] else -2.0, alive != (True, True), False)
    assert game.succeeded(after.state) == alive[0]
    assert after.state.items == FAR
    if action is None:
        assert after.state.snake == snake


@pytest.mark.parametrize(
    ("snake", "action"),
    [
        (((2, 0),), "Left"),
        (((4, 2),), "Down"),
        (((2, 4),), "Right"),
        (((0, 2),), "Up"),
        (((2, 2), (2, 1)), "Left"),  # back into the neck
        (((1, 1), (1, 2), (2, 2), (2, 1)), "Down"),  # its tail
    ],
)
def test_walls_and_the_own_body_kill_and_are_not_legal(snake: tuple[Cell, ...], action: str) -> None:
    game, state = solo(death_reward=-1.0), SnakeState(snake, (), FAR)
    after = play(game, state, action)
    assert (after.state.alive, after.reward, after.terminated, after.state.snake) == (False, -1.0, True, snake)
    assert not game.succeeded(after.state)
    assert action not in game.legal_actions(state)


@pytest.mark.parametrize(
    ("opponent", "player", "moves"),
    [
        (((0, 0),), (4, 0), 2),
        (((0, 0), (1, 0)), (4, 0), 1),
        (((2, 2),), (4, 0), 4),
        (((2, 2), (2, 1)), (4, 0), 3),
        (((2, 2), (2, 1)), (1, 2), 3),  # it does not avoid the player
    ],
)
def test_the_opponent_avoids_walls_and_itself(opponent: tuple[Cell, ...], player: Cell, moves: int) -> None:
    dice = Dice(0)
    duel().step(SnakeState((player,), opponent, FAR), None, dice)  # type: ignore[arg-type]
    assert dice.sides == [moves]


def test_an_opponent_enclosed_by_itself_dies() -> None:
    state = SnakeState(((4, 0),), ((0, 0), (0, 1), (1, 1), (1, 0)), FAR)
    assert not any(play(duel(), state, None, roll).state.opponent_alive for roll in range(4))


def test_the_opponent_eats_and_grows_and_the_player_gets_no_reward() -> None:
    after = play(duel(), SnakeState(((4, 0),), ((2, 2),), (((2, 3),),)), None, RIGHT)
    assert (after.state.opponent, after.reward, after.state.items) == (((2, 3), (2, 2)), 0.0, (((0, 0),),))


def test_observation_of_a_hand_made_board() -> None:
    state = SnakeState(((1, 1), (1, 0)), ((3, 3), (3, 4)), (((0, 2),),))
    assert duel().observe(state) == (
        "Your head: (1, 1)\nYour body: (1, 0)\nOpponent head: (3, 3)\nOpponent body: (3, 4)\nApples: (0, 2)\n"
        "Grid:\n. . A . .\n# @ . . .\n. . . . .\n. . . X x\n. . . . ."
    )


snakes = [game for game in GAMES.values() if isinstance(game, Snake)]


@pytest.mark.parametrize("game", snakes, ids=[game.id for game in snakes])
@given(seed=st.integers(0, 2**63 - 1), turns=st.lists(st.integers(0, 4), min_size=20, max_size=20), careful=st.booleans())
@settings(max_examples=30)
def test_snakes_stay_whole_and_apart_and_items_are_conserved(game: Snake, seed: int, turns: list[int], careful: bool) -> None:
    before, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    for turn in turns:
        options = (game.safe_actions(before) or game.actions) if careful else (*game.actions, None)
        after = game.step(before, options[turn % len(options)], dynamics)
        state = after.state
        things = [*state.snake, *state.opponent, *(cell for cells in state.items for cell in cells)]
        assert len(set(things)) == len(things)
        assert all(inside(cell, game.rows, game.columns) for cell in things)
        assert [len(cells) for cells in state.items] == [item.count for item in game.items]
        assert all(list(cells) == sorted(cells) for cells in state.items)
        bodies = (state.snake, before.snake, state.alive), (state.opponent, before.opponent, state.opponent_alive)
        for body, old, alive in bodies:
            assert all(b in {neighbour(a, action) for action in DIRECTIONS} for a, b in pairwise(body))
            assert len(body) - len(old) in (0, 1)
            assert alive or body == old
        assert bool(state.opponent) == game.has_opponent
        assert after.terminated == (not state.alive or not state.opponent_alive)
        assert state.alive or after.reward == game.death_reward
        if after.terminated or after.truncated:
            break
        before = state
