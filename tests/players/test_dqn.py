"""The DQN: numpy plays the trained network, and training uses training boards only."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch as torch_files
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.game import planes
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.players import can_play
from msgrpo_hub.players.dqn import centred, load_dqn, read_network
from msgrpo_hub.rollout import play_episodes

GAME = "FrozenLake-NotSlippery-v1"


def train(folder: Path, **changes: Any) -> Any:
    """A small network and a short training. Skipped without the extra `dqn`."""
    pytest.importorskip("stable_baselines3")
    from benchmark.dqn.train import train_dqn

    return train_dqn(GAME, folder, **{"steps": 384, "seed": 3, "every": 200, "learning_starts": 100, **changes})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("weights")
    return train(folder, every=1000), folder  # one evaluation, at the end


def boards(count: int) -> list[Any]:
    """Lakes with the player somewhere on them."""
    game, rng = make_game(GAME), np.random.default_rng(0)
    states = [game.initial_state(rng) for _ in range(count)]
    return [LakeState(4, state.holes, (int(rng.integers(4)), int(rng.integers(4)))) for state in states]


def test_the_q_values_of_numpy_are_those_of_the_network_that_was_trained(trained: tuple[Any, Path]) -> None:
    model, folder = trained
    game, network = make_game(GAME), read_network(folder / f"{GAME}.safetensors")
    seen = np.stack([centred(game, planes(game, state)) for state in boards(100)])
    with torch.no_grad():
        expected = model.q_net(torch.from_numpy(seen)).numpy()
    assert np.ptp(expected) > 0.01
    assert np.abs(np.stack([network.values(row) for row in seen]) - expected).max() < 1e-3


def test_the_file_says_where_it_comes_from(trained: tuple[Any, Path]) -> None:
    path = trained[1] / f"{GAME}.safetensors"
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["game"] == GAME
    assert metadata["task"] == task_hash(make_game(GAME))
    assert (metadata["steps"], metadata["seed"]) == ("384", "3")
    assert metadata["command"].startswith("python -m benchmark.dqn.train")
    assert metadata["stable_baselines3"]
    assert path.stat().st_size < 1e6
    assert [file.name for file in trained[1].iterdir()] == [path.name]  # no checkpoint is left


def test_a_network_by_hand_plays_what_it_says(tmp_path: Path) -> None:
    # Two layers: the hidden unit fires where the cell below is ice; then Down is worth 1, else Right is.
    game = FrozenLake("lake", size=2)
    weight = np.zeros((1, 27), np.float16)
    weight[0, 7] = 1  # plane of ice, row 2, column 1
    layers = {"0.weight": weight, "0.bias": np.zeros(1, np.float16)}
    layers |= {"2.weight": np.array([[0], [1], [0], [0]], np.float16), "2.bias": np.array([0, 0, 0.5, 0], np.float16)}
    save_file(layers, tmp_path / "lake.safetensors")
    choose = load_dqn(tmp_path).choose
    assert choose(game, LakeState(2, ((0, 1),)), np.random.default_rng()) == "Down"
    assert choose(game, LakeState(2, ((1, 0),)), np.random.default_rng()) == "Right"


@pytest.mark.parametrize("shapes", [None, "text", "bfloat16", [], [(2, 3), (4, 5)], [(2, 3, 4)]], ids=str)
def test_a_folder_or_file_without_a_network_is_refused(shapes: Any, tmp_path: Path) -> None:
    path = tmp_path / f"{GAME}.safetensors"
    if shapes == "text":
        path.write_bytes(b"not weights")
    elif shapes == "bfloat16":  # numpy lacks this type
        torch_files.save_file({"0.weight": torch.ones(2, 2, dtype=torch.bfloat16)}, path)
    elif shapes is not None:
        layers = {f"{2 * n}.weight": np.zeros(shape, np.float32) for n, shape in enumerate(shapes)}
        layers |= {f"{2 * n}.bias": np.zeros(shape[0], np.float32) for n, shape in enumerate(shapes)}
        save_file(layers, path)
    expected = f"{GAME}.*is not a Q-network" if shapes is not None else "no DQN in "
    with pytest.raises(UserError, match=rf"{expected}.*benchmark\.dqn\.train") as caught:
        load_dqn(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_game_without_weights_and_a_network_for_another_board_are_refused(tmp_path: Path) -> None:
    save_file({"0.weight": np.zeros((4, 10), np.float16), "0.bias": np.zeros(4, np.float16)}, tmp_path / f"{GAME}.safetensors")
    with pytest.raises(UserError, match="has 10 inputs and 4 outputs: expected 147 and 4; train it again"):
        play_episodes(make_game(GAME), load_dqn(tmp_path), [(0, 0)])
    with pytest.raises(UserError, match=f"no DQN for Snake-Solo-v1.*expected one of {GAME}"):
        play_episodes(make_game("Snake-Solo-v1"), load_dqn(tmp_path), [(0, 0)])


def test_every_training_episode_starts_from_a_training_board() -> None:
    pytest.importorskip("stable_baselines3")
    from benchmark.dqn.train import environments

    env = environments(GAME, 1).envs[0]
    starts = [(env.reset(seed=0 if first else None), env.unwrapped.state)[1] for first in [True, *[False] * 100]]
    assert {split_of(make_game(GAME), start) for start in starts} == {"train"}


@pytest.mark.slow
def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from benchmark.dqn.train import checkpoint

    process = multiprocessing.get_context("spawn").Process(target=train, args=(tmp_path,), kwargs={"steps": 10**6})
    process.start()
    try:
        patience = time.monotonic() + 300
        while not checkpoint(tmp_path, GAME).exists():
            assert process.is_alive()
            assert time.monotonic() < patience
            time.sleep(0.05)
    finally:
        process.kill()
        process.join()
    with pytest.raises(UserError, match="has seed 3, not 4"):
        train(tmp_path, seed=4)
    model = train(tmp_path, steps=2000)
    assert model._num_timesteps_at_start >= 200
    assert model.num_timesteps >= 2000
    assert not checkpoint(tmp_path, GAME).exists()


def test_a_variant_is_played_with_the_network_of_its_game(trained: tuple[Any, Path]) -> None:
    keys, rewards = [(episode_seed(GAME, "validation", index), 0) for index in range(20)], []
    for game in map(make_game, (GAME, f"{GAME}:reflected", f"{GAME}:grid")):
        assert can_play(f"dqn:{trained[1]}", game)
        rewards.append([episode.reward for episode in play_episodes(game, load_dqn(trained[1]), keys)])
    assert rewards[0] == rewards[1] == rewards[2]
