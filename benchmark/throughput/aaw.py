"""The benefit of selecting 25 of 100 episodes: `python -m benchmark.throughput.aaw OUTPUT.json`.

Learning at equal wall-clock from the same groups of G = 100: absolute-advantage-weighted, uniform and top-|A| drawing of
G' = 25, and all 100. The time of an arm is that of its updates: the clock stands still while the validation episodes are played.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from benchmark.throughput.cases import PRESETS
from benchmark.throughput.machine import clock
from benchmark.throughput.rows import Key, ResultFile, Row
from benchmark.throughput.update import LAKE, SNAKE
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Trainer

ARMS: dict[str, dict[str, Any]] = {
    "AAW 25": {"sampler": "absolute-advantage", "selected_per_group": 25},
    "uniform 25": {"sampler": "uniform", "selected_per_group": 25},
    "top 25": {"sampler": "top", "selected_per_group": 25},
    "all 100": {"sampler": "uniform", "selected_per_group": 100},
}
SECONDS = {LAKE: 20.0, SNAKE: 300.0}
"""Seconds of training per run."""


def config_of(game: str, arm: str, seed: int) -> TrainConfig:
    """The preset of a game with one group of 100. The learning rate is constant, since the number of updates is unknown."""
    sizes: dict[str, Any] = {"groups": 1, "group_size": 100, "eval_episodes": 100, "test_episodes": 0, "eval_temperature": 1.0}
    return replace(preset(PRESETS[game]), seed=seed, learning_rate_end=1.0, **sizes, **ARMS[arm])


def run(game: str, arm: str, seed: int, seconds: float) -> Row:
    """Trains for some seconds. Returns the validation reward before and after, and the seconds per update."""
    trainer = Trainer(config_of(game, arm, seed), Accelerator(cpu=True))
    before = trainer.evaluate()["validation_reward"]
    spent, lines = 0.0, list[Metrics]()
    while spent < seconds:
        began = clock()
        lines.append(trainer.update(len(lines) + 1).metrics)
        spent += clock() - began
    acting = sum(line["seconds_acting"] for line in lines)
    training = sum(line["seconds_training"] for line in lines)
    return {
        "reward_before": before,
        "reward": trainer.evaluate()["validation_reward"],
        "updates": len(lines),
        "seconds_per_update": spent / len(lines),
        "share_of_acting": acting / (acting + training),
        "groups_without_variance": sum(line["zero_variance_groups"] for line in lines),
    }


def main() -> None:
    """Runs what is missing in the file, alternating between arms, seed by seed."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.aaw", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--games", nargs="*", default=list(SECONDS), choices=list(SECONDS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the seconds per run")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = ResultFile(options.output)
    file.record.setdefault("seconds_per_run", {}).update({game: SECONDS[game] * options.scale for game in options.games})

    def measure(key: Key) -> Row:
        game, arm, seed = key
        return run(game, arm, seed, SECONDS[game] * options.scale)

    file.measure([(game, arm, seed) for seed in range(options.seeds) for game in options.games for arm in ARMS], measure)
    for game in options.games:
        for arm in ARMS:
            rows = [row for row in file.rows if row["key"][:2] == [game, arm]]
            reward, updates, seconds = (
                sum(row[name] for row in rows) / len(rows) for name in ("reward", "updates", "seconds_per_update")
            )
            print(f"{game} {arm}: reward {reward:.3f} after {updates:.0f} updates of {seconds:.2f} s")


if __name__ == "__main__":
    main()
