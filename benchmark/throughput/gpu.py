"""Engine and training step on a GPU: `benchmark/throughput/gpu.sh OUTPUT_DIR`, or with `--device cpu --tiny` to try it.

First small models are compared with the CPU; then, for Qwen2.5's shapes with random weights in bfloat16 and forced reply lengths,
a whole update of G = 100 episodes is timed against lockstep `model.generate` and a padded batch, and one of `paper-snake` by
itself. Each row is saved as it is measured. What failed and what the time limit
left out is listed, and the rest goes on.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmark.throughput import offline  # isort: skip  (before what needs the packages that it stands in for)

offline.stand_in()

from benchmark.throughput.agreement import log_prob_difference, loss_and_gradient_difference  # noqa: E402
from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer  # noqa: E402
from benchmark.throughput.limit import ceilings, needed  # noqa: E402
from benchmark.throughput.measure import timed_update, warm_up, work  # noqa: E402
from benchmark.throughput.naive import NaiveTrainer  # noqa: E402
from benchmark.throughput.rows import Key, ResultFile, Row  # noqa: E402
from benchmark.throughput.shapes import model_folder  # noqa: E402
from msgrpo_hub.training.metrics import memory_mb  # noqa: E402

LAKE, SNAKE, PAPER = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1", "Snake-Standard-v1"
BUDGETS = {"ours": 8192, "naive": 4096}
"""Tokens of a training pass on a GPU by side, the most that fit at 3B: ours is that of the `paper-*` presets."""


@dataclass(frozen=True)
class Settings:
    """Settings for a device."""

    device: str
    tiny: bool
    seconds: float
    models: Path

    @property
    def dtype(self) -> torch.dtype:
        """The type of the timed models' weights."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def changes(self, case: Case, side: str = "ours") -> dict[str, Any]:
        """Changes to a case's configuration on this device."""
        model = model_folder(case.model, self.models, self.dtype, self.device)
        budget = BUDGETS[side] if self.device != "cpu" else 2048
        return {"model": model, "dtype": self.dtype_name, "device": self.device, "token_budget": budget}

    @property
    def cases(self) -> list[tuple[Case, Sequence[str]]]:
        """The cases and their sides in order of priority: those at the end are left out if time is short."""
        both = ("ours", "naive")
        if self.tiny:
            small = Case(game=SNAKE, model="tiny", reply=8, groups=1, group_size=8, drawn=4, horizon=2)
            return [(small, both), (replace(small, game=PAPER), both[:1])]
        sizes: dict[str, Any] = {"groups": 1, "group_size": 100, "drawn": 25}
        names, turns = ("qwen2.5-3b", "qwen2.5-0.5b", "qwen2.5-1.5b"), {64: 4, 256: 2}
        compared = [
            (Case(game=game, model=name, reply=reply, horizon=turns[reply], **sizes), both)
            for game, reply in ((SNAKE, 64), (SNAKE, 256), (LAKE, 64))
            for name in names
        ]
        paper = Case(game=PAPER, model="qwen2.5-3b", reply=256, **sizes)
        return [*compared[:6], (paper, both[:1]), *compared[6:]]


def main() -> None:
    """Writes gpu.json in the output folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.gpu", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to try the script itself")
    parser.add_argument(
        "--seconds", type=float, default=430.0, help="time limit: no row is started that would probably end later"
    )
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no CUDA GPU here: give --device cpu --tiny to try the script")
    began = time.monotonic()
    file = ResultFile(options.output / "gpu.json")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(options.device, options.tiny, options.seconds, Path(folder))
        file.record["ceilings"] = ceilings(options.device, settings.dtype, *((256, 16) if options.tiny else (8192, 2048)))
        file.record["agreement"] = agreement(settings)
        file.save()
        measure_all(settings, file, began)
    file.record["seconds"] = time.monotonic() - began
    file.save()
    summary = {key: file.record[key] for key in ("agreement", "failed", "left_out", "seconds")}
    print(json.dumps(summary | {"rows": len(file.rows)}, indent=1))
    if not file.record["agreement"]["agrees"]:
        sys.exit("the device computes something else than the CPU: see gpu.json")
    if file.record["failed"]:
        sys.exit("some rows failed, and were left out: see gpu.json")


def agreement(settings: Settings) -> dict[str, Any]:
    """Compares the sides on the device with small models: exactly in float32, and for the record in the timed type."""
    case = Case(game=SNAKE, model="tiny", reply=8, groups=1, group_size=8, drawn=4, horizon=3)
    same = loss_and_gradient_difference(case, settings.models)
    nats = log_prob_difference(case, settings.models)
    agrees = same["loss"] < 1e-4 and same["gradient"] < 1e-4 and nats < 1e-3
    model_folder("tiny", settings.models, settings.dtype, settings.device)
    timed = {"dtype": settings.dtype_name, "nats": log_prob_difference(case, settings.models, **settings.changes(case))}
    return {"agrees": agrees, "float32": {**same, "nats": nats}, "timed": timed}


def measure_all(settings: Settings, file: ResultFile, began: float) -> None:
    """Measures every case on both sides while time allows. A row is assumed to take twice as long as the longest so far.

    A row that fails, as where the memory of the card does not suffice, is noted and left out.
    """
    file.record["left_out"], file.record["failed"] = [], []
    longest = 0.0
    for case, sides in settings.cases:
        for side in sides:
            started = time.monotonic()
            if not settings.tiny and started - began + 2 * longest > settings.seconds - 60:
                file.record["left_out"].append([case.name, side])
                continue

            def measure(key: Key, case: Case = case) -> Row:
                return measure_on(settings, case, key[1], file.record["ceilings"])

            try:
                file.measure([(case.name, side)], measure)
            except Exception as error:
                said = (str(error).splitlines() or [""])[0]
                file.record["failed"].append([case.name, side, f"{type(error).__name__}: {said}"])
                file.save()
            release(settings)
            longest = max(longest, time.monotonic() - started)


def measure_on(settings: Settings, case: Case, side: str, rates: dict[str, float]) -> Row:
    """One update of one side, after a warm-up, and on our side after a first update, which records the steps of the others.

    That of the paper's preset takes long enough to be the first.
    """
    kind = NaiveTrainer if side == "naive" else MeasuredTrainer
    trainer = make_trainer(case, settings.models, kind, **settings.changes(case, side))
    warm_up(trainer, case)
    first = timed_update(trainer, 1)["wall_seconds"] if side == "ours" and case.game != PAPER else 0.0
    if settings.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    line = timed_update(trainer, 2) | work(trainer.played)
    seconds = line["seconds_acting"] + line["seconds_training"]
    row = {
        "seconds": seconds,
        "seconds_of_first": first,
        **line,
        "memory_mb": memory_mb(settings.device),
        **used(needed(trainer), line, rates),
    }
    row |= {f"{key}_per_second_of_acting": line[key] / line["seconds_acting"] for key in ("tokens", "episodes")}
    return row


def release(settings: Settings) -> None:
    """Gives the memory of a row back before the next one."""
    gc.collect()
    if settings.device != "cpu":
        torch.cuda.empty_cache()


def used(work_needed: dict[str, float], line: dict[str, float], rates: dict[str, float]) -> dict[str, float]:
    """Shares of the measured peak rates: what the update needed over what the GPU could have done in the time."""
    return {
        f"{what}_share_{stage}": work_needed[f"{what}_{stage}"] / line[f"seconds_{stage}"] / rates[f"{what}_per_second"]
        for what in ("operations", "bytes")
        for stage in ("acting", "training")
    }


if __name__ == "__main__":
    main()
