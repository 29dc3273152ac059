"""The games as gymnasium environments: the checker passes, observations are in their spaces, and the rules are the games'."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from msgrpo_hub.games import GAMES, make_game, splits_of
from msgrpo_hub.games.environment import TextGameEnv, text_space
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.registry import TABLE_GAMES
from msgrpo_hub.games.snake import Snake, SnakeState
from tests.games.reading_player import IDS

Kind = Literal["text", "tensor"]
both_kinds = pytest.mark.parametrize("kind", ["text", "tensor"])


@both_kinds
@pytest.mark.parametrize("game_id", GAMES)
def test_gymnasium_s_checker_passes_without_a_warning(game_id: str, kind: Kind) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"msgrpo_hub/{game_id}", observation=kind).unwrapped)


@both_kinds
@pytest.mark.parametrize("game_id", [*GAMES, *TABLE_GAMES, *IDS])
def test_observations_and_masks_are_in_their_spaces(game_id: str, kind: Kind) -> None:
    env, rng = TextGameEnv(game_id, kind), np.random.default_rng(0)
    for seed in range(2):
        observation, info = env.reset(seed=seed)
        ended = False
        while not ended:
            assert env.observation_space.contains(observation)
            assert info["legal_actions"] == env.game.legal_actions(env.state)
            legal = np.flatnonzero(info["action_mask"])
            assert [env.game.actions[i] for i in legal] == list(info["legal_actions"])
            observation, _, terminated, truncated, info = env.step(rng.choice(legal) if len(legal) else np.int64(0))
            ended = terminated or truncated


def test_the_longest_texts_are_in_the_text_space() -> None:
    """Long snakes and lakes of holes are rare in random play: here every cell is taken."""
    for game in GAMES.values():
        cells = tuple((r, c) for r in range(game.rows) for c in range(game.columns))
        full: Any = LakeState(game.rows, cells, (game.rows - 1, game.columns - 1))
        if isinstance(game, Snake):
            full = SnakeState(cells[: len(cells) // 2], cells[len(cells) // 2 :] * game.has_opponent, ((),) * len(game.items))
        assert game.observe(full) in text_space(game)


@pytest.mark.parametrize("game_id", [*GAMES, *TABLE_GAMES])
def test_the_environment_plays_the_game_with_its_own_ends(game_id: str) -> None:
    env, game = gymnasium.make(f"msgrpo_hub/{game_id}"), make_game(game_id)
    for seed in range(6):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        state, (observation, _) = splits_of(game_id).initial_state("train", rng), env.reset(seed=seed)
        ended = False
        while not ended:
            assert observation == game.observe(state)
            action = (game.safe_actions(state) or game.actions)[-1]
            after = game.step(state, action, rng)
            observation, *result, _ = env.step(game.actions.index(action))
            assert tuple(result) == (after.reward, after.terminated, after.truncated)
            state, ended = after.state, after.terminated or after.truncated


def test_episodes_without_a_seed_differ_and_follow_from_the_first_seed() -> None:
    env = TextGameEnv("Snake-Standard-v1")
    runs = [[env.reset(seed=5)[0], env.reset()[0], env.reset()[0]] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(set(map(str, runs[0]))) == 3


def test_a_step_before_reset_and_a_wrong_action_are_refused() -> None:
    env = TextGameEnv("Snake-Solo-v1")
    for call in (lambda: env.step(np.int64(0)), TextGameEnv("Snake-Solo-v1", render_mode="rgb_array").render):
        with pytest.raises(ValueError, match="call reset first"):
            call()
    env.reset(seed=0)
    for action in (-1, 4, 1.0, None, "Left"):
        with pytest.raises(ValueError, match="is not in Discrete"):
            env.step(action)  # type: ignore[arg-type]


@pytest.mark.parametrize("game_id", [*GAMES, *TABLE_GAMES, "Snake-Solo-v1:other-symbols"])
def test_every_game_is_drawn_in_pixels_that_change_with_the_board(game_id: str) -> None:
    env = TextGameEnv(game_id, render_mode="rgb_array")
    _, info = env.reset(seed=0)
    before, grid = np.asarray(env.render()), env.game.grid(env.state)
    env.step(np.flatnonzero(info["action_mask"])[-1])
    assert (before.dtype, before.shape[0] % 2, before.shape[1] % 2, before.shape[2]) == (np.uint8, 0, 0, 3)
    assert (before != np.asarray(env.render())).any() == (env.game.grid(env.state) != grid)


def test_gymnasium_records_videos_and_stable_baselines3_makes_vector_environments(tmp_path: Path) -> None:
    name = "msgrpo_hub/Snake-Standard-v1"
    env = gymnasium.wrappers.RecordVideo(gymnasium.make(name, render_mode="rgb_array"), str(tmp_path))
    env.reset(seed=1)
    while not any(env.step(0)[2:4]):
        pass
    env.close()
    assert (tmp_path / "rl-video-episode-0.mp4").stat().st_size > 1000
    vector = pytest.importorskip("stable_baselines3.common.env_util").make_vec_env(name, 2, env_kwargs={"observation": "tensor"})
    assert vector.reset().shape == (2, *vector.observation_space.shape)
    assert vector.render().ndim == 3


def test_make_finds_the_games_in_a_fresh_process() -> None:
    place = "msgrpo_hub.games.environment:msgrpo_hub/Snake-Solo-reflected-v1"
    program = f"import gymnasium; e = gymnasium.make('{place}'); e.reset(seed=0); e.step(0); print(e.unwrapped.game.id)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "Snake-Solo-v1:reflected\n"
