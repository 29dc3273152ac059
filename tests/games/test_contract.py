"""The contract of every registered game."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import FURTHER, GAMES, Game, Transition, make_game, render_text, stream
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import has_scene, return_range
from msgrpo_hub.games.registry import TABLE_GAMES
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal
from msgrpo_hub.rollout import play_groups

BOARDS: dict[str, Game] = {**GAMES, **{name: FURTHER[name] for name in ("FrozenLake-Trap-v1", "FrozenLake-RAGEN2-Slippery-v1")}}
"""Games of a player on a board; one lake represents all other projects."""
EVERY: dict[str, Game] = {**BOARDS, **TABLE_GAMES}
every_game = pytest.mark.parametrize("game", EVERY.values(), ids=EVERY)
every_board = pytest.mark.parametrize("game", BOARDS.values(), ids=BOARDS)
seeds = st.integers(0, 2**63 - 1)
choices = st.lists(st.integers(0, 6), min_size=1, max_size=40)
"""The action of each turn, repeated as needed; 4 is no action."""


def walk(game: Game, seed: int, turns: list[int]) -> Iterator[tuple[Any, str | None, Transition[Any]]]:
    """(state, action, transition) for each turn of one episode."""
    state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    options: list[str | None] = [*(game.actions * 2)[:4], None, *game.actions[4:]]
    turn = 0
    while True:
        action = options[turns[turn % len(turns)] % len(options)]
        after = game.step(state, action, dynamics)
        yield state, action, after
        if after.terminated or after.truncated:
            return
        state, turn = after.state, turn + 1


def random_turns(seed: int) -> list[int]:
    return [int(turn) for turn in np.random.default_rng(seed).integers(0, 7, size=40)]


def player_cell(game: Game, state: Any) -> tuple[int, int]:
    (cell,) = [(r, c) for r, row in enumerate(game.grid(state)) for c, symbol in enumerate(row) if symbol == "@"]
    return cell


def visited(game: Game) -> list[Any]:
    """States of random episodes, and of careful ones, which reach the horizon."""
    states = [s for seed in range(30) for before, _, after in walk(game, seed, random_turns(seed)) for s in (before, after.state)]
    for seed in range(10):
        state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
        ended = False
        while not ended:
            after = game.step(state, (game.safe_actions(state) or game.actions)[0], dynamics)
            states.append(state := after.state)
            ended = after.terminated or after.truncated
    return states


@every_game
@given(seed=seeds, turns=choices)
@settings(max_examples=15)
def test_an_episode_is_reproducible_ends_by_its_horizon_for_one_reason_and_stays_in_its_ranges(
    game: Game, seed: int, turns: list[int]
) -> None:
    played = list(walk(game, seed, turns))
    assert played == list(walk(game, seed, turns))
    episode, (low, high) = [after for _, _, after in played], game.reward_range
    assert [after.state.turn for after in episode] == list(range(1, len(episode) + 1))
    assert all(not (after.terminated or after.truncated) for after in episode[:-1])
    assert episode[-1].terminated != episode[-1].truncated
    assert len(episode) == game.horizon if episode[-1].truncated else len(episode) <= game.horizon
    assert all(low <= after.reward <= high for after in episode)
    low, high = return_range(game)
    assert low <= sum(after.reward for after in episode) <= high


def test_a_snake_dies_once_and_eats_once_a_turn() -> None:
    assert return_range(make_game("Snake-Standard-v1")) == (-2, 20)
    assert return_range(make_game("Snake-PoisonApple-v1")) == (-21, 0)  # 19 poisoned apples, then a wall
    assert return_range(make_game("Snake-Fire-v1")) == (-21, 20)
    assert return_range(make_game("Snake-Short-v1:reflected")) == return_range(make_game("Snake-Short-v1")) == (-2, 8)


@every_game
def test_games_and_states_are_frozen_and_hashable_and_a_step_does_not_change_its_state(game: Game) -> None:
    for before, action, after in walk(game, 7, random_turns(7)):
        copy = dataclasses.replace(before)
        game.step(before, action, np.random.default_rng(0))
        assert before == copy
        assert hash(before) == hash(copy)
        with pytest.raises(dataclasses.FrozenInstanceError):
            after.state.turn = 0
    assert hash(game) == hash(dataclasses.replace(game))  # type: ignore[type-var]


@every_game
def test_safe_actions_are_legal_and_other_actions_move_into_a_wall_or_the_own_body(game: Game) -> None:
    for state in visited(game):
        legal, safe = game.legal_actions(state), game.safe_actions(state)
        assert [a for a in game.actions if a in legal] == list(legal)
        assert [a for a in legal if a in safe] == list(safe)
        for action in set(game.actions) - set(legal) if game.id in BOARDS else ():
            (r, c), rows = player_cell(game, state), game.grid(state)
            dr, dc = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}[action]
            inside = 0 <= r + dr < game.rows and 0 <= c + dc < game.columns
            assert not inside or rows[r + dr][c + dc] == "#"


@every_board
def test_no_action_leaves_the_player_in_place_and_the_turn_passes(game: Game) -> None:
    for seed in range(15):
        for before, action, after in walk(game, seed, [*random_turns(seed)[:5], 4]):
            if action is None:
                assert player_cell(game, after.state) == player_cell(game, before)
                assert (after.state.turn, after.reward) == (before.turn + 1, 0)


@every_game
def test_an_ended_episode_and_an_unknown_action_raise(game: Game) -> None:
    rng = np.random.default_rng(0)
    *_, (_, _, last) = walk(game, 0, random_turns(0))
    for action in (game.actions[0], None):
        with pytest.raises(ValueError, match="has ended"):
            game.step(last.state, action, rng)
    for action in ("left", "Jump", ""):
        with pytest.raises(ValueError, match=", ".join(game.actions)):
            game.step(game.initial_state(rng), action, rng)


@every_game
@pytest.mark.parametrize("view", ["full", "coordinates"])
def test_the_observation_changes_if_and_only_if_what_it_shows_changes(game: Game, view: str) -> None:
    # No observation shows which snake died in the last move, nor the turn, unless the reward depends on it.
    hidden = {"alive", "opponent_alive"} | (set() if getattr(game, "exactly", False) else {"turn"})
    seen, pairs = dataclasses.replace(game, view=view), set()  # type: ignore[type-var]
    for state in visited(game):
        facts = tuple(getattr(state, field.name) for field in dataclasses.fields(state) if field.name not in hidden)
        pairs.add((seen.observe(state), facts))
    assert len({text for text, _ in pairs}) == len(pairs) == len({facts for _, facts in pairs})


@every_game
def test_grids_have_the_size_of_the_board_and_symbols_that_the_rules_explain(game: Game) -> None:
    grid_only = dataclasses.replace(game, view="grid")  # type: ignore[type-var]
    for state in visited(game)[:40]:
        rows, lines = game.grid(state), render_text(game, state).splitlines()
        assert [len(row) for row in rows] == [game.columns] * game.rows
        assert [len(line) for line in lines] == [2 * game.columns + 3] * (game.rows + 2)
        assert set("".join(rows)) <= set(game.symbols)
        assert grid_only.observe(state) == "\n".join(["Grid:", *map(" ".join, rows)])
        assert game.observe(state).endswith(grid_only.observe(state))
    text = "\n".join(game.rules)
    assert all(f"{symbol} is" in text for symbol in game.symbols)
    assert f"{game.horizon} turns" in text


@every_game
def test_group_members_share_the_start_and_not_the_dynamics(game: Game) -> None:
    player = ScriptedPolicy(choose_greedy if has_scene(game) else choose_optimal)  # both choose without chance
    groups = play_groups(game, player, seeds=range(12), group_size=4)
    assert all([episode.member for episode in group.episodes] == [*range(4)] for group in groups)
    assert all(len({episode.steps[0].observation for episode in group.episodes}) == 1 for group in groups)
    trails = [{tuple(step.observation for step in episode.steps) for episode in group.episodes} for group in groups]
    if game.id in TABLE_GAMES or (isinstance(game, FrozenLake) and not game.slippery):  # without chance
        assert all(len(trail) == 1 for trail in trails)
    else:
        assert np.mean([len(trail) for trail in trails]) > 2
