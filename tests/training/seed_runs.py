"""Folders of finished runs that differ in their seed, with the figures of scripted play on real test boards."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.games.game import Game, is_solvable
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import parse_games, to_toml
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.summary import Played, append_metrics, scores

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
EPISODES = 12


def row(game: Game, name: str, first: int) -> dict[str, Any]:
    """The row of a scripted player on some test episodes."""
    keys = [(episode_seed(game.id, "test", first + index), 0) for index in range(EPISODES)]
    episodes = play_episodes(game, ScriptedPolicy(SCRIPTED[name]), keys)
    return scores(game, Played(name, episodes, episodes))


def write_run(folder: Path, seed: int, updates: int = 20, done: int | None = None, gain: float = 0.5, **changes: Any) -> Path:
    """A run folder. The figures of the adapter come from random legal play, on different episodes for each seed.

    Args:
        folder: of the run.
        seed: of the run.
        updates: of its configuration.
        done: the number of finished updates; by default all, and then there is a summary.
        gain: the gain of its reward during training, apart from noise.
        changes: of the configuration.
    """
    config = TrainConfig(**{"updates": updates, "seed": seed, "test_episodes": EPISODES, "eval_every": 5, **changes})
    folder.mkdir(parents=True, exist_ok=True)
    run, noise = RunFolder(folder), np.random.default_rng(seed).normal(size=updates)
    first, *others = parse_games(config.game)
    run.claim(to_toml(config))
    run.metrics.touch()
    for index in range(1, (updates if done is None else done) + 1):
        reward = 0.1 + gain * index / updates + 0.05 * float(noise[index - 1])
        of_all = {"reward": reward} | ({"validation_reward": reward + 0.1} if index % 5 == 0 else {})
        if others:  # their rewards are 8 higher than the first game's
            of_first = {f"{key}/{first}": value for key, value in of_all.items()}
            of_all = {key: value + 8 * len(others) / (1 + len(others)) for key, value in of_all.items()} | of_first
        times = {"seconds_acting": 1.0 + 0.1 * seed, "seconds_training": 0.5, "processor_seconds": 0.7, "tokens_per_second": 30}
        append_metrics(run.metrics, {"update": float(index), **of_all, **times})
    if done is None:
        game = make_game(first)
        after = "optimal" if is_solvable(game) else "greedy"
        known = {"random": row(game, "random", 0), "adapter": row(game, "random-legal", 50 * seed), after: row(game, after, 0)}
        times = {"seconds_acting": 1.0, "seconds_training": 1.0, "seconds": 2.0}
        summary = {"game": game.id, "episodes": EPISODES, "players": [*known], **known, **times, "config": asdict(config)}
        run.summary.write_text(json.dumps(summary))
    return folder


def write_set(folder: Path, seeds: int, **given: Any) -> Path:
    """A folder of finished runs as written by `train --seeds`."""
    for seed in range(seeds):
        write_run(folder / f"seed-{seed}", seed, **given)
    return folder


def rewards(folder: Path) -> list[float]:
    """The adapter's test reward of every run of a set."""
    summaries = [json.loads(path.read_text()) for path in sorted(folder.glob("seed-*/summary.json"))]
    return [summary["adapter"]["reward"] for summary in summaries]
