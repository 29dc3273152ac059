"""Both engines on the same updates: `python -m benchmark.families.speed` writes `speed.json` and the page of families.

Each engine plays the same starts in a process of its own, several times in turn, so that noise falls on both. The model of 0.5 B
parameters has the shape of Qwen2.5-0.5B with random weights.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator

from benchmark.families.__main__ import SPEED, write_page
from benchmark.throughput.machine import provenance
from benchmark.throughput.shapes import model_folder
from msgrpo_hub.training.config import PRESETS, TrainConfig
from msgrpo_hub.training.trainer import Trainer

THREADS = 2


@dataclass(frozen=True)
class Layout:
    """A model and its updates."""

    model: str
    game: str
    settings: Mapping[str, Any]
    updates: int
    rounds: int


LAYOUTS = {
    "lake, built-in base": Layout("pocket", "FrozenLake-NotSlippery-v1", PRESETS["quickstart"], 3, 3),
    "Snake, built-in base": Layout("pocket", "Snake-Solo-v1", PRESETS["quickstart-snake"], 2, 2),
    "lake, 0.5B": Layout(
        "qwen2.5-0.5b",
        "FrozenLake-NotSlippery-v1",
        {"groups": 2, "group_size": 4, "selected_per_group": 2, "max_new_tokens": 8, "updates": 2, "beta": 0.0},
        1,
        2,
    ),
}


def measured(layout: Layout, engine: str, models: Path, threads: int) -> dict[str, float]:
    """Seconds of acting and learning of an update, and the process's most memory. The first of several updates does not count."""
    torch.set_num_threads(threads)
    config = TrainConfig(
        **{**layout.settings, "game": layout.game, "model": model_folder(layout.model, models), "engine": engine, "device": "cpu"}
    )
    trainer = Trainer(config, Accelerator(cpu=True))
    metrics = [trainer.update(index).metrics for index in range(1, layout.updates + 1)][min(1, layout.updates - 1) :]
    means = {name: sum(update[name] for update in metrics) / len(metrics) for name in ("seconds_acting", "seconds_training")}
    return {**means, "memory_mb": max(update["memory_mb"] for update in metrics)}


def in_a_process(*arguments: Any) -> dict[str, float]:
    """`measured`, in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, arguments)


def main() -> None:
    """Measures all layouts and writes the medians."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as models:
        for name, layout in LAYOUTS.items():
            rounds = [
                {engine: in_a_process(layout, engine, Path(models), THREADS) for engine in ("fast", "plain")}
                for _ in range(layout.rounds)
            ]
            rows[name] = {
                engine: {key: round(median(one[engine][key] for one in rounds), 2) for key in rounds[0][engine]}
                for engine in ("fast", "plain")
            }
            print(name, json.dumps(rows[name]), flush=True)
    SPEED.write_text(json.dumps({**provenance(), "threads": THREADS, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    write_page()


if __name__ == "__main__":
    main()
