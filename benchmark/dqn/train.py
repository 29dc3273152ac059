"""Trains a DQN (stable-baselines3) for a game: `python -m benchmark.dqn.train GAME... --output-dir benchmark/dqn/weights`.

Needs the extra `dqn`. The result plays as `dqn:FOLDER` and needs only numpy. An interrupted training resumes from its last
checkpoint, with an empty replay buffer.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import safetensors.numpy
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmark import ended
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players.dqn import Networks, QNetwork, centred
from msgrpo_hub.rollout import play_episodes

ENVIRONMENTS = 8
CHECKPOINT_STEPS = 20_000
WARM_UP = 5_000
"""Steps of random play before the first update; also after an interruption, since the replay buffer is not saved."""

HYPERPARAMETERS: dict[str, Any] = {
    "learning_rate": 5e-4,
    "buffer_size": 100_000,
    "batch_size": 128,
    "gamma": 0.9,
    "train_freq": 4,
    "gradient_steps": 8,
    "target_update_interval": 1_000,
    "exploration_fraction": 0.5,
    "exploration_final_eps": 0.05,
    "policy_kwargs": {"net_arch": [192, 128]},
}
"""Hyperparameters chosen on validation episodes of Snake-Standard-v1; one update per 4 steps of play."""


class SeenFromTheMiddle(gymnasium.ObservationWrapper[npt.NDArray[np.uint8], np.int64, Any]):
    """Flattens the planes as the network reads them (`players.dqn.centred`)."""

    def __init__(self, env: gymnasium.Env[Any, np.int64]) -> None:
        super().__init__(env)
        symbols, rows, columns = env.observation_space.shape or ()
        self.observation_space = gymnasium.spaces.Box(0, 1, ((symbols - 1) * (2 * rows - 1) * (2 * columns - 1),), np.uint8)

    def observation(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        game: Any = self.get_wrapper_attr("game")
        return centred(game, observation)


def environments(game_id: str, count: int = ENVIRONMENTS) -> DummyVecEnv:
    """Vectorised environments that start from training boards."""
    name = f"msgrpo_hub.games.environment:msgrpo_hub/{game_id}"
    return DummyVecEnv([lambda: SeenFromTheMiddle(gymnasium.make(name, observation="tensor", disable_env_checker=True))] * count)


def exported(model: DQN) -> dict[str, npt.NDArray[np.float16]]:
    """The Q-network's layers in half precision: `0.weight` (outputs, inputs), `0.bias`, `2.weight`, …"""
    return {name: tensor.numpy().astype(np.float16) for name, tensor in model.q_net.q_net.state_dict().items()}


def validation_reward(model: DQN, game_id: str, episodes: int = 200) -> float:
    """The mean reward of the exported network on validation episodes."""
    tensors = {name: tensor.astype(np.float32) for name, tensor in exported(model).items()}
    names = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
    network = QNetwork(tuple((tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for name in names))
    episode_keys = [(episode_seed(game_id, "validation", index), 0) for index in range(episodes)]
    policy = ScriptedPolicy(Networks(Path(), {game_id: network}).choose)
    return float(np.mean([episode.reward for episode in play_episodes(make_game(game_id), policy, episode_keys)]))


class Checkpoints(BaseCallback):
    """Saves checkpoints, and exports the network whenever it is the best so far on validation episodes."""

    def __init__(self, game_id: str, folder: Path, seed: int, best: float, every: int, start: int) -> None:
        super().__init__()
        self.game_id, self.folder, self.seed, self.best, self.every = game_id, folder, seed, best, every
        self.started, self.next = time.monotonic(), start + every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.save()
        return True

    def _on_training_end(self) -> None:
        if self.num_timesteps + self.every > self.next:  # there are steps since the last checkpoint
            self.save()

    def save(self) -> None:
        """Exports the network if it is the best so far, then replaces the checkpoint atomically."""
        model: Any = self.model
        reward = validation_reward(model, self.game_id)
        so_far = f"{self.game_id}: {self.num_timesteps} steps, {time.monotonic() - self.started:.0f} s"
        print(f"{so_far}, validation reward {reward:.3f} (best before: {self.best:.3f})", file=sys.stderr, flush=True)
        if reward > self.best:
            self.best = reward
            metadata = {
                "game": self.game_id,
                "task": task_hash(make_game(self.game_id)),
                "steps": str(self.num_timesteps),
                "validation_reward": f"{reward:.4f}",
                "seed": str(self.seed),
                "stable_baselines3": stable_baselines3.__version__,
                "torch": torch.__version__,
                "command": shlex.join(["python", "-m", "benchmark.dqn.train", *sys.argv[1:]]),
            }
            exports = self.folder / f"{self.game_id}.new"
            safetensors.numpy.save_file(exported(model), exports, metadata)
            exports.replace(self.folder / f"{self.game_id}.safetensors")
        model.best_reward, model.seed_of_run = self.best, self.seed
        new = self.folder / f"{self.game_id}.new.zip"
        model.save(new)
        new.replace(checkpoint(self.folder, self.game_id))


def checkpoint(folder: Path, game_id: str) -> Path:
    """The checkpoint of an unfinished training; deleted at its end."""
    return folder / f"{game_id}.checkpoint.zip"


def train_dqn(game_id: str, folder: Path, steps: int, seed: int, every: int = CHECKPOINT_STEPS, **changes: Any) -> Any:
    """Trains on one game, resuming from a checkpoint if one exists. Writes `<game id>.safetensors` and returns the `DQN`.

    Raises:
        UserError: the game is unknown, or the checkpoint has another seed.
    """
    make_game(game_id)
    folder.mkdir(parents=True, exist_ok=True)
    saved = checkpoint(folder, game_id)
    model: Any
    if saved.exists():
        model = DQN.load(saved, env=environments(game_id), device="cpu")
        if (own := model.seed_of_run) != seed:
            raise UserError(f"{str(saved)!r} has seed {own}, not {seed}: give --seed {own}, or delete it")
        best = model.best_reward
        model.set_random_seed(seed + model.num_timesteps)  # avoids repeating the same boards
        model.learning_starts = model.num_timesteps + WARM_UP
    else:
        options = {"learning_starts": WARM_UP, **HYPERPARAMETERS, **changes}
        model, best = DQN("MlpPolicy", environments(game_id), seed=seed, device="cpu", **options), float("-inf")
    left = max(steps - model.num_timesteps, 0)
    model.learn(left, callback=Checkpoints(game_id, folder, seed, best, every, model.num_timesteps), reset_num_timesteps=False)
    saved.unlink()
    return model


def main(arguments: list[str]) -> None:
    """Trains on games, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.dqn.train", description=__doc__)
    parser.add_argument("games", nargs="+", metavar="GAME")
    parser.add_argument("--output-dir", type=Path, default=Path("benchmark/dqn/weights"))
    parser.add_argument("--steps", type=int, default=300_000, help="steps of play per game")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for game_id in given.games:
        train_dqn(game_id, given.output_dir, given.steps, given.seed)


if __name__ == "__main__":
    ended(main)
