"""Marks and words of a replay: best moves against a breadth-first search, and how episodes ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Episode
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.games.board import DIRECTIONS, Cell
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.snake import Snake, SnakeState
from msgrpo_hub.players.scripted import choose_random, choose_random_safe
from msgrpo_hub.rendering.replay import best_moves, how_it_ended
from msgrpo_hub.rollout import play_episodes, replayed_states

LAKE, SLIPPERY, SOLO = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Solo-v1"


def ways_to_the_goal(state: LakeState) -> dict[Cell, int]:
    """Steps from each cell to the goal, by breadth-first search."""
    steps, queue = {state.goal: 0}, deque([state.goal])
    while queue:
        row, column = queue.popleft()
        for down, right in DIRECTIONS.values():
            cell = row + down, column + right
            if min(cell) >= 0 and max(cell) < state.size and cell not in state.holes and cell not in steps:
                steps[cell] = steps[row, column] + 1
                queue.append(cell)
    return steps


@given(st.integers(0, 10**6), st.lists(st.sampled_from(list(DIRECTIONS)), max_size=5))
def test_on_firm_ice_the_marked_moves_are_those_of_the_shortest_ways(seed: int, moves: list[str]) -> None:
    game, rng = make_game(LAKE), stream(seed, "dynamics", 0)
    state = game.initial_state(stream(seed, "initial_state"))
    for move in moves:
        after = game.step(state, move, rng)
        if after.terminated:
            break
        state = after.state
    steps = ways_to_the_goal(state)
    here = steps.get(state.player, 99)
    if here > game.horizon - state.turn:
        assert best_moves(game, state) == game.actions  # the goal is out of reach: none is better
        return
    row, column = state.player
    shorter = {name for name, (down, right) in DIRECTIONS.items() if steps.get((row + down, column + right), 99) == here - 1}
    assert set(best_moves(game, state)) == shorter


def test_a_move_against_a_wall_is_marked_only_where_no_other_is_as_good() -> None:
    """On slippery ice, pushing the wall can be the only move that never slides into a hole."""
    game, walls = make_game(SLIPPERY), 0
    for number in range(40):
        state = game.initial_state(stream(episode_seed(SLIPPERY, "test", number), "initial_state"))
        best, legal = best_moves(game, state), game.legal_actions(state)
        assert best
        assert set(best) <= set(legal) or not set(best) & set(legal)
        walls += not set(best) <= set(legal)
    assert walls


def words_of(episode: Episode) -> str:
    game, states = make_game(episode.game_id), replayed_states(make_game(episode.game_id), episode)
    return how_it_ended(game, states, episode.steps[-1].action, success=episode.success, terminated=episode.terminated)


@pytest.mark.parametrize(
    ("game_id", "choose", "found"),
    [
        (LAKE, choose_random, {"reached the goal", "fell into a hole", "ran out of turns after 8"}),
        ("FrozenLake-Exactly8-v1", choose_random, {"reached the goal on the wrong turn"}),
        (SOLO, choose_random_safe, {"survived all 20 turns"}),
        ("Snake-Standard-v1", choose_random_safe, {"survived, the other snake died"}),
    ],
)
def test_only_a_success_is_said_to_be_one(game_id: str, choose: Callable[..., str], found: set[str]) -> None:
    episodes = play_episodes(make_game(game_id), ScriptedPolicy(choose), [(number, 0) for number in range(80)])
    said = [words_of(episode) for episode in episodes]
    successes = {"reached the goal", "survived all 20 turns", "survived, the other snake died"}
    assert [words in successes for words in said] == [episode.success for episode in episodes]
    assert found <= {*said}


@pytest.mark.parametrize(
    ("snake", "opponent", "action", "words"),
    [
        ([(0, 0)], [], "Up", "ran into the wall"),
        ([(1, 1), (1, 2), (2, 2), (2, 1), (2, 0)], [], "Down", "bit itself"),
        ([(1, 1)], [(0, 3), (0, 2), (1, 2)], "Right", "ran into the other snake"),
    ],
)
def test_what_killed_a_snake_is_said_in_words(snake: list[Cell], opponent: list[Cell], action: str, words: str) -> None:
    game = Snake("Snake-Here-v1", size=4, items=(), has_opponent=bool(opponent))
    before = SnakeState(tuple(snake), tuple(opponent), ())
    after = game.step(before, action, stream(0, "dynamics", 0)).state
    assert not after.alive
    assert how_it_ended(game, [before, after], action, success=False, terminated=True) == words
