"""Measures one side of one case in its own process: `python -m benchmark.throughput.measure SIDE CASE.json`.

Each measurement has its own process, so that its peak memory is its own. All sides are timed on the same updates, with the
same initial states.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.naive import MergedNaiveTrainer, NaiveTrainer
from benchmark.throughput.rows import Row, clock
from benchmark.throughput.with_vllm import VllmTrainer
from msgrpo_hub.episode import Group
from msgrpo_hub.training.summary import Metrics, memory_mb

SIDES: dict[str, type[MeasuredTrainer] | None] = {
    **{"ours": MeasuredTrainer, "naive": NaiveTrainer, "merged": MergedNaiveTrainer, "vllm": VllmTrainer, "trl": None}
}
"""Side → trainer; TRL has its own."""


def main() -> None:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.measure", description=__doc__)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("case", help="the fields of a Case, as JSON")
    parser.add_argument("--models", type=Path, required=True, help="folder of random models")
    parser.add_argument("--updates", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options.side, Case(**json.loads(options.case)), options.models, options.updates)))


def in_a_process(side: str, case: Case, models: Path, updates: int, threads: int) -> Row:
    """Runs `main` in a process."""
    program = [sys.executable, "-W", "ignore", "-m", "benchmark.throughput.measure", side, json.dumps(asdict(case))]
    program += ["--models", str(models), "--updates", str(updates), "--threads", str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"measuring {side} of {case.name} failed:\n{done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(side: str, case: Case, models: Path, updates: int) -> dict[str, Any]:
    """Seconds per update by stage, and the work done: medians over updates."""
    before, kind = os.getloadavg()[0], SIDES[side]
    if kind is None:
        from benchmark.throughput.with_trl import TrlRun  # only this side needs TRL

        metrics, played = TrlRun(case, models, updates).updates()
    else:
        trainer = make_trainer(case, models, kind)
        metrics, played = [], []
        with trainer.ready():
            warm_up(trainer, case)
            for index in range(1, updates + 1):
                metrics.append(timed_update(trainer, index))
                played.append(trainer.played)
    rows = [line | work(groups) for line, groups in zip(metrics, played, strict=True)]
    figures = {key: median(row[key] for row in rows) for key in rows[0]}
    seconds = figures["seconds_acting"] + figures["seconds_training"]
    rates = {f"{key}_per_second": figures[key] / seconds for key in ("episodes", "steps", "tokens")}
    return {"seconds": seconds, **figures, **rates, "memory_mb": peak_mb(), "load_average": before, "updates": updates}


def warm_up(trainer: MeasuredTrainer, case: Case, tokens: int = 4) -> None:
    """One warm-up update: with short forced replies on every side, or else the first update, on our side only."""
    if case.reply:
        policy: Any = trainer.agent
        policy.policy.max_new_tokens = tokens
        trainer.update(1)
        policy.policy.max_new_tokens = case.reply
    elif type(trainer) is MeasuredTrainer:
        trainer.update(1)


def timed_update(trainer: MeasuredTrainer, index: int) -> Metrics:
    """Seconds of one update, split into sampling and training, and its wall time."""
    began, wall = clock(), time.monotonic()
    trainer.update(index)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    spent, acting = clock() - began, trainer.seconds_acting
    return {"seconds_acting": acting, "seconds_training": spent - acting, "wall_seconds": time.monotonic() - wall}


def peak_mb() -> float:
    """Peak memory in MB of the GPU or of this program. On Linux getrusage would include the parent process."""
    status = Path("/proc/self/status")
    if torch.cuda.is_available() or not status.exists():
        return memory_mb("cuda" if torch.cuda.is_available() else "cpu")
    return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1e3


def work(groups: list[Group]) -> Metrics:
    """The amount of play, equal on all sides of a case up to chance."""
    steps = [step for group in groups for episode in group.episodes for step in episode.steps]
    return {
        "episodes": float(sum(len(group.episodes) for group in groups)),
        "steps": float(len(steps)),
        "tokens": float(sum(len(step.completion.token_ids) for step in steps)),
        "distinct_prompt_ratio": len({step.completion.prompt_ids for step in steps}) / len(steps),
        "unreadable_ratio": sum(step.action is None for step in steps) / len(steps),
    }


if __name__ == "__main__":
    main()
