"""MiniGrid and TextArena as text games, against the packages themselves; skipped where the extra `games` is not installed."""

from __future__ import annotations

import re
import sys
from collections import deque
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import board_of, episode_seed, splits_of, stream
from msgrpo_hub.games.further_environments import Towers, _loaded
from msgrpo_hub.games.registry import OPTIONAL
from msgrpo_hub.games.solving import optimal_actions, optimal_value, silent_value, soonest_optimal_action, values_at
from msgrpo_hub.games.table_game import TableState
from tests.games.test_contract import options

EMPTY, LAVA, DOOR, HANOI = OPTIONAL.values()
EXTRA = "is not installed: pip install 'msgrpo-hub[games]'"
minigrid = pytest.mark.skipif(find_spec("minigrid") is None, reason=f"MiniGrid {EXTRA}")
textarena = pytest.mark.skipif(find_spec("textarena") is None, reason=f"TextArena {EXTRA}")
every_room = pytest.mark.parametrize("game", [EMPTY, LAVA, DOOR], ids=lambda game: game.id)


def theirs(game: Any, seed: int) -> Any:
    """MiniGrid's own environment, made by its registered id, at the start of one of our episodes."""
    import gymnasium
    import minigrid  # noqa: F401  (registers its environments)

    names = {EMPTY.id: "MiniGrid-Empty-Random-6x6-v0", LAVA.id: "MiniGrid-LavaGapS7-v0", DOOR.id: "MiniGrid-DoorKey-5x5-v0"}
    env: Any = gymnasium.make(names[game.id]).unwrapped
    env.reset(seed=int(stream(seed, "initial_state").integers(2**31)))
    return env


def drawn(env: Any) -> list[str]:
    """MiniGrid's own drawing of itself, in our symbols: the second letter of a cell is a colour."""
    ours = {" ": ".", "W": "#", "V": "~", "L": "X", "_": "O"}
    cells = [line[::2] for line in env.pprint_grid().split("\n")]
    you = (int(env.agent_pos[1]), int(env.agent_pos[0]))
    return [
        "".join("v" if cell == "V" and (row, column) == you else ours.get(cell, cell) for column, cell in enumerate(line))
        for row, line in enumerate(cells)
    ]


@minigrid
@every_room
def test_episodes_are_minigrids_move_by_move(game: Any) -> None:
    rewards = []
    for seed in range(18):
        env, state = theirs(game, seed), game.initial_state(stream(seed, "initial_state"))
        assert game.grid(state) == drawn(env)
        rng, cautious = np.random.default_rng(seed), seed % 3 == 0
        while True:
            action = soonest_optimal_action(game, state) if cautious else game.actions[int(rng.integers(7))]
            _, reward, ended, _, _ = env.step(game.actions.index(action))
            after = game.step(state, action, rng)
            assert (after.reward, after.terminated) == (pytest.approx(reward), ended)
            assert game.grid(after.state) == drawn(env)
            rewards.append(reward)
            if ended or after.truncated:
                break
            state = after.state
    assert max(rewards) > 0.9


def fewest_turns(env: Any) -> int:
    """By breadth-first search through copies of MiniGrid's environment."""
    waiting, seen = deque([(env, 0)]), {env.hash(64)}
    while True:
        at, turns = waiting.popleft()
        for action in range(6):
            ahead = deepcopy(at)
            _, reward, ended, _, _ = ahead.step(action)
            if reward > 0:
                return turns + 1
            ahead.step_count = at.step_count
            if not ended and ahead.hash(64) not in seen:
                seen.add(ahead.hash(64))
                waiting.append((ahead, turns + 1))


@minigrid
@pytest.mark.parametrize(("game", "allowed"), [(EMPTY, 144), (LAVA, 196)], ids=lambda value: getattr(value, "id", ""))
def test_the_optimum_is_the_shortest_way_of_a_search_in_minigrid(game: Any, allowed: int) -> None:
    for seed in range(3):
        assert optimal_value(game, seed) == pytest.approx(1 - 0.9 * fewest_turns(theirs(game, seed)) / allowed)
        assert silent_value(game, seed) == 0


@minigrid
def test_the_door_opens_with_the_key_alone() -> None:
    state = DOOR.initial_state(stream(0, "initial_state"))
    seen = []
    while not DOOR.succeeded(state):
        seen.append(DOOR.observe(state))
        state = DOOR.outcomes(state, soonest_optimal_action(DOOR, state))[0][1].state
    assert "Locked yellow door" in seen[0]
    assert "You carry: nothing" in seen[0]
    assert "Open yellow door" in seen[-1]
    assert any("You carry: yellow key" in text and "Locked yellow door" in text for text in seen)


@minigrid
@every_room
def test_rooms_keep_to_the_contract_of_a_game_and_to_their_splits(game: Any) -> None:
    boards = {}
    for split in ("train", "test"):
        starts = [game.initial_state(stream(episode_seed(game.id, split, index), "initial_state")) for index in range(40)]
        boards[split] = {board_of(game, start) for start in starts}
    assert splits_of(game.id).are_apart
    assert not boards["train"] & boards["test"]
    contract(game)


@textarena
def test_the_tower_of_hanoi_is_textarenas_move_by_move() -> None:
    from textarena.envs.TowerOfHanoi.env import TowerOfHanoiEnv

    outcomes = set()
    for seed in range(40):
        env, rng, state = TowerOfHanoiEnv(num_disks=3, max_turns=14), np.random.default_rng(seed), TableState(Towers())
        env.reset(num_players=1, seed=seed)
        clumsy = seed % 4 == 0
        while True:
            legal = HANOI.legal_actions(state) if clumsy else tuple(a for a in HANOI.actions if possible(state, a))
            action = None if rng.random() < 0.05 else str(rng.choice(legal))
            over, _ = env.step(f"[{action}]" if action else "I do not know")
            after = HANOI.step(state, action, rng)
            assert after.state.position.towers == tuple(map(tuple, env.state.game_state["towers"].values()))
            assert after.terminated == over
            assert after.reward == (env.state.rewards[0] if over else 0)
            state = after.state
            if over:
                outcomes.add((state.position.moves >= 14, round(after.reward, 2)))
                break
    assert len(outcomes) >= 2
    contract(HANOI)


def possible(state: TableState, action: str) -> bool:
    """Whether a disk may be moved so."""
    source, target = (state.position.towers["ABC".index(name)] for name in action.split())
    return bool(source) and (not target or target[-1] > source[-1])


@textarena
def test_three_disks_take_seven_moves() -> None:
    game, state, moves = replace(HANOI, horizon=7), TableState(Towers()), []
    assert values_at(game, state).best(state) == 1
    # With 6 turns, 4 bring the largest disk to C, and 2 invalid moves end the game: a third.
    assert optimal_value(replace(HANOI, horizon=6), 0) == pytest.approx(1 / 3)
    while not game.succeeded(state):
        moves += optimal_actions(game, state)
        state = game.outcomes(state, moves[-1])[0][1].state
    assert moves == ["A C", "A B", "C B", "A C", "B A", "B C", "A C"]


def contract(game: Any) -> None:
    """What `test_contract.py` asks of every game, on a few episodes."""
    for seed in range(8):
        rng, state, named = np.random.default_rng(seed), game.initial_state(stream(seed, "initial_state")), options(game)
        assert state == game.initial_state(stream(seed, "initial_state"))
        while True:
            assert set(game.safe_actions(state)) <= set(game.legal_actions(state)) <= set(game.actions)
            assert [len(row) for row in game.grid(state)] == [game.columns] * game.rows
            assert set("".join(game.grid(state))) <= set(game.symbols)
            action = named[int(rng.integers(len(named)))]
            after = game.step(state, action, rng)
            assert hash(after) == hash(game.step(state, action, rng))
            assert after.state.turn == state.turn + 1 <= game.horizon
            assert game.reward_range[0] <= after.reward <= game.reward_range[1]
            state = after.state
            if after.terminated or after.truncated:
                break
        with pytest.raises(ValueError, match="has ended"):
            game.step(state, None, rng)
    assert all(f"{symbol} is" in game.rules[-1] for symbol in game.symbols)
    with pytest.raises(ValueError, match=", ".join(game.actions)):
        game.step(game.initial_state(rng), "Jump", rng)


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid.envs", None)
    with pytest.raises(UserError, match=re.escape(f"this game needs the package 'minigrid', which {EXTRA}")):
        _loaded("minigrid.envs")
