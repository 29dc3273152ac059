"""The games as gymnasium environments: the checker passes, the spaces hold, and the adapter adds and hides nothing."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.games import GAMES, render_text, splits_of
from msgrpo_hub.games.environment import TextGameEnv, register_games, text_space
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.snake import Snake, SnakeState

Kind = Literal["text", "tensor"]
both_kinds = pytest.mark.parametrize("kind", ["text", "tensor"])


@both_kinds
@pytest.mark.parametrize("game_id", GAMES)
def test_gymnasium_s_checker_passes_without_a_warning(game_id: str, kind: Kind) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"msgrpo_hub/{game_id}", observation=kind).unwrapped)


@both_kinds
@given(
    game_id=st.sampled_from(list(GAMES)),
    seed=st.integers(0, 2**31 - 1),
    actions=st.lists(st.integers(0, 3), min_size=60, max_size=60),
)
@settings(max_examples=40)
def test_every_observation_and_mask_lies_in_its_space(kind: Kind, game_id: str, seed: int, actions: list[int]) -> None:
    env = TextGameEnv(game_id, kind)
    observation, info = env.reset(seed=seed)
    ended = False
    for action in actions:
        assert env.observation_space.contains(observation)
        assert info["legal_actions"] == env.game.legal_actions(env.state)
        assert [env.game.actions[i] for i in np.flatnonzero(info["action_mask"])] == list(info["legal_actions"])
        if ended:
            break
        legal = np.flatnonzero(info["action_mask"])
        observation, _, terminated, truncated, info = env.step(legal[action % len(legal)] if len(legal) else np.int64(action))
        ended = terminated or truncated
    assert ended


def test_the_longest_texts_lie_in_the_text_space() -> None:
    """Long snakes and lakes of holes are rare in random play: here every cell is taken."""
    for game in GAMES.values():
        cells = tuple((r, c) for r in range(game.rows) for c in range(game.columns))
        full: Any = LakeState(game.rows, cells, (game.rows - 1, game.columns - 1))
        if isinstance(game, Snake):
            full = SnakeState(cells[: len(cells) // 2], cells[len(cells) // 2 :] * game.has_opponent, ((),) * len(game.items))
        assert game.observe(full) in text_space(game)


@pytest.mark.parametrize("game_id", GAMES)
def test_planes_are_the_grid_one_hot(game_id: str) -> None:
    env = TextGameEnv(game_id, "tensor")
    observation, _ = env.reset(seed=3)
    assert isinstance(observation, np.ndarray)
    assert observation.dtype == np.float32
    assert observation.shape == (len(env.game.symbols), env.game.rows, env.game.columns)
    assert (observation.sum(axis=0) == 1).all()
    symbols = np.array(list(env.game.symbols))[observation.argmax(axis=0)]
    assert ["".join(row) for row in symbols] == env.game.grid(env.state)


@pytest.mark.parametrize("game_id", GAMES)
def test_the_environment_plays_the_game_and_nothing_else(game_id: str) -> None:
    """Step for step what the rules give under the same generator, with the game's own ends and no second limit."""
    env = gymnasium.make(f"msgrpo_hub/{game_id}")
    game = GAMES[game_id]
    for seed in range(8):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        state, (observation, _) = splits_of(game_id).initial_state("train", rng), env.reset(seed=seed)
        while True:
            assert observation == game.observe(state)
            action = (game.safe_actions(state) or game.actions)[-1]
            after = game.step(state, action, rng)
            observation, reward, terminated, truncated, _ = env.step(game.actions.index(action))
            assert (reward, terminated, truncated) == (after.reward, after.terminated, after.truncated)
            state = after.state
            if terminated or truncated:
                break
        assert observation == game.observe(state)


def test_make_adds_no_time_limit_of_its_own() -> None:
    env: Any = gymnasium.make("msgrpo_hub/Snake-Standard-v1")
    while env is not env.unwrapped:
        assert not isinstance(env, gymnasium.wrappers.TimeLimit)
        env = env.env


def test_waiting_out_the_horizon_is_truncation() -> None:
    env = TextGameEnv("FrozenLake-NotSlippery-v1")
    env.reset(seed=0)
    ends = [env.step(np.int64(0))[2:4] for _ in range(8)]  # the start is in the left column: Left stays there
    assert ends == [(False, False)] * 7 + [(False, True)]


def test_episodes_without_a_seed_differ_and_follow_from_the_first_seed() -> None:
    env = TextGameEnv("Snake-Standard-v1")
    runs = [[env.reset(seed=5)[0], env.reset()[0], env.reset()[0]] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(set(map(str, runs[0]))) == 3


def test_ansi_rendering_is_the_drawing_and_without_a_mode_there_is_none() -> None:
    env = TextGameEnv("Snake-Fire-v1", render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == render_text(env.game, env.state)
    silent = TextGameEnv("Snake-Fire-v1")
    silent.reset(seed=0)
    assert silent.render() is None


def test_vector_environments_run_with_planes() -> None:
    envs = gymnasium.make_vec("msgrpo_hub/Snake-Solo-v1", num_envs=3, vectorization_mode="sync", observation="tensor")
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (3, 4, 6, 6)
    for _ in range(30):
        observations, _, _, _, infos = envs.step(envs.action_space.sample())
    assert observations.shape == (3, 4, 6, 6)
    assert infos["action_mask"].shape == (3, 4)


def test_misuse_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="did you mean 'Snake-Solo-v1'"):
        TextGameEnv("Snake-Sol-v1")
    with pytest.raises(ValueError, match="unknown observation 'tensors': did you mean 'tensor'"):
        TextGameEnv("Snake-Solo-v1", "tensors")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown render mode 'human': expected one of ansi"):
        TextGameEnv("Snake-Solo-v1", render_mode="human")  # type: ignore[arg-type]
    env = TextGameEnv("Snake-Solo-v1")
    with pytest.raises(ValueError, match="call reset first"):
        env.step(np.int64(0))
    env.reset(seed=0)
    for action in (-1, 4, 1.0, None, "Left"):
        with pytest.raises(ValueError, match="is not in Discrete"):
            env.step(action)  # type: ignore[arg-type]
    while not any(env.step(np.int64(0))[2:4]):
        pass
    with pytest.raises(ValueError, match="has ended"):
        env.step(np.int64(0))


def test_registering_twice_changes_nothing_and_warns_of_nothing() -> None:
    register_games()  # another test may have brought a game of a package
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_games()
    assert dict(gymnasium.registry) == before


@pytest.mark.parametrize(
    "lines",
    [
        "import gymnasium; e = gymnasium.make('msgrpo_hub.games.environment:msgrpo_hub/Snake-Standard-v1')",
        "import gymnasium, msgrpo_hub.games.environment; e = gymnasium.make('msgrpo_hub/Snake-Standard-v1')",
    ],
)
def test_make_finds_the_games_in_a_fresh_process(lines: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", f"{lines}; e.reset(seed=0); e.step(0)"], check=True)
