"""The benefit of selecting 25 of 100 episodes: `python -m benchmark.throughput.aaw OUTPUT.json`.

Learning in equal time from the same groups of G = 100: absolute-advantage-weighted, uniform and top-|A| selection of
G' = 25, and all 100. The time of an arm is the time of its updates, without the validation.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

from accelerate import Accelerator

from benchmark import ended
from benchmark.throughput.cases import LAKE, PRESETS, SNAKE
from benchmark.throughput.rows import ResultFile, Row, clock, options
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.summary import Metrics
from msgrpo_hub.training.trainer import Trainer

ARMS: dict[str, dict[str, Any]] = {
    "AAW 25": {"sampler": "absolute-advantage", "selected_per_group": 25},
    "uniform 25": {"sampler": "uniform", "selected_per_group": 25},
    "top 25": {"sampler": "top", "selected_per_group": 25},
    "all 100": {"sampler": "uniform", "selected_per_group": 100},
}
SECONDS = {LAKE: 20.0, SNAKE: 300.0}
"""Seconds of training per run."""


def run(game: str, arm: str, seed: int, seconds: float) -> Row:
    """Trains the preset of a game with one group of 100. The number of updates is unknown, so the learning rate is constant."""
    sizes: dict[str, Any] = {"groups": 1, "group_size": 100, "eval_episodes": 100, "test_episodes": 0, "eval_temperature": 1.0}
    config = replace(preset(PRESETS[game]), seed=seed, learning_rate_end=1.0, **sizes, **ARMS[arm])
    trainer = Trainer(config, Accelerator(cpu=True))
    before = trainer.evaluate()["validation_reward"]
    spent, lines = 0.0, list[Metrics]()
    while spent < seconds:
        began = clock()
        lines.append(trainer.update(len(lines) + 1).metrics)
        spent += clock() - began
    acting, training = (sum(line[f"seconds_{part}"] for line in lines) for part in ("acting", "training"))
    return {
        "reward_before": before,
        "reward": trainer.evaluate()["validation_reward"],
        "updates": len(lines),
        "seconds_per_update": spent / len(lines),
        "share_of_acting": acting / (acting + training),
        "groups_without_variance": sum(line["zero_variance_groups"] for line in lines),
    }


def main(arguments: list[str]) -> None:
    """Measures the missing rows of the file, alternating between arms, seed by seed."""
    given = options(
        arguments,
        __doc__,
        threads=1,
        seeds={"type": int, "default": 3},
        games={"nargs": "*", "default": list(SECONDS), "choices": list(SECONDS)},
        scale={"type": float, "default": 1.0, "help": "factor on the seconds per run"},
    )
    file, seconds = ResultFile(given.output), {game: SECONDS[game] * given.scale for game in given.games}
    file.record.setdefault("seconds_per_run", {}).update(seconds)

    keys = [(game, arm, seed) for seed in range(given.seeds) for game in given.games for arm in ARMS]
    file.measure(keys, lambda key: run(key[0], key[1], key[2], seconds[key[0]]))
    for game in given.games:
        for arm in ARMS:
            rows = [row for row in file.rows if row["key"][:2] == [game, arm]]
            reward, updates, each = (mean(row[name] for row in rows) for name in ("reward", "updates", "seconds_per_update"))
            print(f"{game} {arm}: reward {reward:.3f} after {updates:.0f} updates of {each:.2f} s")


if __name__ == "__main__":
    ended(main)
