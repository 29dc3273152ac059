"""What every registered game promises, whatever its rules: one contract, all games."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import FURTHER, GAMES, Game, Transition, make_game, render_text, splits_of, stream
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.registry import TOY_TEXT
from msgrpo_hub.games.scene import has_scene
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal
from msgrpo_hub.rollout import play_groups

BOARDS: dict[str, Game] = {**GAMES, **{name: FURTHER[name] for name in ("FrozenLake-Trap-v1", "FrozenLake-RAGEN2-Slippery-v1")}}
"""Games of a player on a board; one lake stands for those of other projects."""
EVERY: dict[str, Game] = {**BOARDS, **TOY_TEXT}
every_game = pytest.mark.parametrize("game", EVERY.values(), ids=EVERY)
every_board = pytest.mark.parametrize("game", BOARDS.values(), ids=BOARDS)
seeds = st.integers(0, 2**63 - 1)
choices = st.lists(st.integers(0, 6), min_size=1, max_size=40)
"""Which action each turn takes, 4 being no action; the list is walked round and round."""


def options(game: Game) -> list[str | None]:
    """The actions that the numbers of `choices` stand for, round and round."""
    return [*(game.actions * 2)[:4], None, *game.actions[4:]]


def walk(game: Game, seed: int, turns: list[int]) -> Iterator[tuple[Any, str | None, Transition[Any]]]:
    """(state, action, what came of it) for each turn of one episode."""
    state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    named, turn = options(game), 0
    while True:
        action = named[turns[turn % len(turns)] % len(named)]
        after = game.step(state, action, dynamics)
        yield state, action, after
        if after.terminated or after.truncated:
            return
        state, turn = after.state, turn + 1


def random_turns(seed: int) -> list[int]:
    return [int(turn) for turn in np.random.default_rng(seed).integers(0, 7, size=40)]


def careful_turns(game: Game, seed: int) -> list[Any]:
    """The states of an episode of the player that takes the first safe action: long enough to meet the horizon."""
    state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    states = [state]
    while True:
        after = game.step(state, (game.safe_actions(state) or game.actions)[0], dynamics)
        states.append(state := after.state)
        if after.terminated or after.truncated:
            return states


def player_cell(game: Game, state: Any) -> tuple[int, int]:
    (cell,) = [(r, c) for r, row in enumerate(game.grid(state)) for c, symbol in enumerate(row) if symbol == "@"]
    return cell


def shown(game: Game, state: Any) -> tuple[Any, ...]:
    """All that a state holds, except what no observation tells: who died in the move that ended the game, and the turn,
    unless the reward depends on it."""
    hidden = {"alive", "opponent_alive"} | (set() if getattr(game, "exactly", False) else {"turn"})
    return tuple(getattr(state, field.name) for field in dataclasses.fields(state) if field.name not in hidden)


def visited(game: Game) -> list[Any]:
    states = [s for seed in range(30) for before, _, after in walk(game, seed, random_turns(seed)) for s in (before, after.state)]
    return states + [s for seed in range(10) for s in careful_turns(game, seed)]


@every_game
@given(seed=seeds, turns=choices)
@settings(max_examples=15)
def test_same_seed_and_same_actions_give_the_same_game(game: Game, seed: int, turns: list[int]) -> None:
    assert list(walk(game, seed, turns)) == list(walk(game, seed, turns))


@pytest.mark.parametrize("game", [game for game in EVERY.values() if splits_of(game.id).are_apart], ids=lambda game: game.id)
def test_another_seed_gives_another_game(game: Game) -> None:
    starts = {game.initial_state(stream(seed, "initial_state")) for seed in range(50)}
    assert len(starts) >= 20  # the 4 × 4 lake with 1.6 holes on average has few maps; all others give 50


@every_game
def test_games_and_states_are_frozen_and_hashable_and_a_step_leaves_its_state_alone(game: Game) -> None:
    for before, action, after in walk(game, 7, random_turns(7)):
        copy = dataclasses.replace(before)
        game.step(before, action, np.random.default_rng(0))
        assert before == copy
        assert hash(before) == hash(copy)
        with pytest.raises(dataclasses.FrozenInstanceError):
            after.state.turn = 0
    assert hash(game) == hash(dataclasses.replace(game))  # type: ignore[type-var]
    with pytest.raises(dataclasses.FrozenInstanceError):
        game.horizon = 1  # type: ignore[misc]


@every_game
@given(seed=seeds, turns=choices)
@settings(max_examples=15)
def test_an_episode_ends_by_its_horizon_and_for_one_reason(game: Game, seed: int, turns: list[int]) -> None:
    episode = [after for _, _, after in walk(game, seed, turns)]
    assert len(episode) <= game.horizon
    assert [after.state.turn for after in episode] == list(range(1, len(episode) + 1))
    assert all(not (after.terminated or after.truncated) for after in episode[:-1])
    assert episode[-1].terminated != episode[-1].truncated
    assert not episode[-1].truncated or len(episode) == game.horizon


@every_board
def test_some_episodes_are_terminated_and_some_are_truncated(game: Game) -> None:
    lasts = [list(walk(game, seed, turns))[-1][2] for seed in range(50) for turns in (random_turns(seed), [4])]
    assert any(after.terminated for after in lasts)
    assert any(after.truncated for after in lasts)


@every_game
@given(seed=seeds, turns=choices)
@settings(max_examples=15)
def test_rewards_stay_in_the_reward_range(game: Game, seed: int, turns: list[int]) -> None:
    low, high = game.reward_range
    assert all(low <= after.reward <= high for _, _, after in walk(game, seed, turns))


@every_game
def test_safe_actions_are_legal_and_legal_actions_are_available(game: Game) -> None:
    for state in visited(game):
        legal, safe = game.legal_actions(state), game.safe_actions(state)
        assert set(safe) <= set(legal) <= set(game.actions)
        assert [a for a in game.actions if a in legal] == list(legal)
        assert [a for a in game.actions if a in safe] == list(safe)


@every_board
def test_legal_actions_are_the_ones_that_would_move_the_player(game: Game) -> None:
    """On firm ground and alone: an action that is not legal bumps into a wall or into the player's own body."""
    for state in visited(game):
        for action in set(game.actions) - set(game.legal_actions(state)):
            (r, c), rows = player_cell(game, state), game.grid(state)
            dr, dc = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}[action]
            inside = 0 <= r + dr < game.rows and 0 <= c + dc < game.columns
            assert not inside or rows[r + dr][c + dc] == "#"


@every_board
@given(seed=seeds, turns=choices)
@settings(max_examples=15)
def test_no_action_leaves_the_player_in_place_and_lets_the_turn_pass(game: Game, seed: int, turns: list[int]) -> None:
    for before, action, after in walk(game, seed, [*turns, 4]):
        if action is None:
            assert player_cell(game, after.state) == player_cell(game, before)
            assert after.state.turn == before.turn + 1
            assert after.reward == 0


@every_game
def test_stepping_after_the_end_raises(game: Game) -> None:
    for seed in range(20):
        *_, (_, _, last) = walk(game, seed, random_turns(seed))
        for action in (game.actions[0], None):
            with pytest.raises(ValueError, match="has ended"):
                game.step(last.state, action, np.random.default_rng(0))


@every_game
@pytest.mark.parametrize("action", ["left", "Jump", ""])
def test_an_action_the_game_does_not_have_raises_and_names_those_it_has(game: Game, action: str) -> None:
    state = game.initial_state(np.random.default_rng(0))
    with pytest.raises(ValueError, match=", ".join(game.actions)):
        game.step(state, action, np.random.default_rng(0))


@every_game
@pytest.mark.parametrize("view", ["full", "coordinates"])
def test_the_observation_changes_if_and_only_if_what_it_shows_changes(game: Game, view: str) -> None:
    seen = dataclasses.replace(game, view=view)  # type: ignore[type-var]
    pairs = {(seen.observe(state), shown(game, state)) for state in visited(game)}
    assert len({text for text, _ in pairs}) == len(pairs) == len({facts for _, facts in pairs})


@every_game
def test_the_grid_view_shows_the_grid_and_nothing_else(game: Game) -> None:
    seen = dataclasses.replace(game, view="grid")  # type: ignore[type-var]
    for state in visited(game)[:40]:
        assert seen.observe(state) == "\n".join(["Grid:", *(" ".join(row) for row in game.grid(state))])
        assert game.observe(state).endswith(seen.observe(state))


@every_game
def test_grid_and_drawing_have_the_size_of_the_board_and_known_symbols(game: Game) -> None:
    for state in visited(game)[:40]:
        rows, lines = game.grid(state), render_text(game, state).splitlines()
        assert [len(row) for row in rows] == [game.columns] * game.rows
        assert [len(line) for line in lines] == [2 * game.columns + 3] * (game.rows + 2)
        assert set("".join(rows)) <= set(game.symbols)


@every_game
def test_the_rules_explain_every_symbol_and_tell_the_horizon(game: Game) -> None:
    text = "\n".join(game.rules)
    assert all(f"{symbol} is" in text for symbol in game.symbols)
    assert f"{game.horizon} turns" in text


@every_game
def test_group_members_share_the_start_and_not_the_dynamics(game: Game) -> None:
    """One player without chance of its own: what sets members apart is the dynamics alone, where the game has any."""
    player = ScriptedPolicy(choose_greedy if has_scene(game) else choose_optimal)
    groups = play_groups(game, player, seeds=range(12), group_size=4)
    firsts = [{episode.steps[0].observation for episode in group.episodes} for group in groups]
    assert all(len(first) == 1 for first in firsts)
    trails = [{tuple(step.observation for step in episode.steps) for episode in group.episodes} for group in groups]
    without_chance = game.id.startswith(("CliffWalking", "Taxi")) or (isinstance(game, FrozenLake) and not game.slippery)
    if without_chance:
        assert all(len(trail) == 1 for trail in trails)
    else:
        assert np.mean([len(trail) for trail in trails]) > 2


def test_every_promised_game_is_registered_under_its_own_id() -> None:
    lakes = {f"FrozenLake-{name}-v1" for name in ("NotSlippery", "NotSlippery20", "Slippery", "BigSlippery")}
    kinds = ("Standard", "Short", "Solo", "PoisonApple", "Banana", "PoisonAppleBanana", "Fire", "DownHill")
    assert lakes | {f"Snake-{kind}-v1" for kind in kinds} <= set(GAMES)
    assert all(make_game(game_id).id == game_id for game_id in GAMES)


def test_an_unknown_game_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"unknown game 'Snake-Standart-v1': did you mean 'Snake-Standard-v1'\?"):
        make_game("Snake-Standart-v1")
