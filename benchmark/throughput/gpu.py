"""Engine and training step on a GPU: `benchmark/throughput/gpu.sh OUTPUT_DIR`, or with `--device cpu --tiny` to try it.

First small models are compared with the CPU. Then, for Qwen2.5's shapes with random weights in bfloat16 and forced reply lengths,
a whole update of G = 100 episodes is timed against lockstep `model.generate` and a padded batch, and one of `paper-snake` without
a comparison. Each row is saved at once. The file lists rows that failed and rows that the time limit left out.
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
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

if "tomli_w" not in sys.modules and util.find_spec("tomli_w") is None:
    sys.modules["tomli_w"] = ModuleType("tomli_w")  # gpu.sh does not require it, since no TOML is written

from benchmark.throughput.cases import LAKE, PAPER, SNAKE, Case, MeasuredTrainer, make_trainer, model_folder
from benchmark.throughput.limit import ceilings, needed
from benchmark.throughput.measure import timed_update, warm_up, work
from benchmark.throughput.naive import NaiveTrainer, log_prob_difference, loss_and_gradient_difference
from benchmark.throughput.rows import ResultFile, Row
from msgrpo_hub.training.summary import memory_mb

BUDGETS = {"ours": 8192, "naive": 4096}
"""Side → tokens of a training pass on a GPU, the most that fit at 3B: ours is from the `paper-*` presets."""


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

    def changes(self, case: Case, side: str = "ours") -> dict[str, Any]:
        """Changes to a case's configuration on this device."""
        model = model_folder(case.model, self.models, self.dtype, self.device)
        budget = BUDGETS[side] if self.device != "cpu" else 2048
        dtype = str(self.dtype).removeprefix("torch.")
        return {"model": model, "dtype": dtype, "device": self.device, "token_budget": budget}

    @property
    def cases(self) -> list[tuple[Case, Sequence[str]]]:
        """The cases and their sides in order of priority: the last ones are left out if time is short."""
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
    parser.add_argument("--seconds", type=float, default=430.0, help="time limit: no row starts that would probably end later")
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
    """Compares the sides on the device with small models: in float32 against limits, in the timed type for the record."""
    case = Case(game=SNAKE, model="tiny", reply=8, groups=1, group_size=8, drawn=4, horizon=3)
    same = loss_and_gradient_difference(case, settings.models)
    nats = log_prob_difference(case, settings.models)
    agrees = same["loss"] < 1e-4 and same["gradient"] < 1e-4 and nats < 1e-3
    changes = settings.changes(case)
    timed = {"dtype": changes["dtype"], "nats": log_prob_difference(case, settings.models, **changes)}
    return {"agrees": agrees, "float32": {**same, "nats": nats}, "timed": timed}


def measure_all(settings: Settings, file: ResultFile, began: float) -> None:
    """Measures every case on both sides while time allows. A row is assumed to take twice as long as the longest so far.

    A row that fails, for instance because the GPU's memory does not suffice, is recorded and left out.
    """
    file.record["left_out"], file.record["failed"] = [], []
    longest, rates, cases = 0.0, file.record["ceilings"], {case.name: case for case, _ in settings.cases}
    for case, side in ((case, side) for case, sides in settings.cases for side in sides):
        started = time.monotonic()
        if not settings.tiny and started - began + 2 * longest > settings.seconds - 60:
            file.record["left_out"].append([case.name, side])
            continue

        try:
            file.measure([(case.name, side)], lambda key: measure_on(settings, cases[key[0]], key[1], rates))
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            file.record["failed"].append([case.name, side, f"{type(error).__name__}: {said}"])
            file.save()
        gc.collect()  # frees the memory for the next row
        if settings.device != "cpu":
            torch.cuda.empty_cache()
        longest = max(longest, time.monotonic() - started)


def measure_on(settings: Settings, case: Case, side: str, rates: dict[str, float]) -> Row:
    """One update of one side after a warm-up; on our side after a first update too, which sets up the later ones.

    The update of the paper's preset takes so long that its first one is timed. Shares are of the measured peak rates: the work
    that the update needed over the work that the GPU could have done in the time.
    """
    kind = NaiveTrainer if side == "naive" else MeasuredTrainer
    trainer = make_trainer(case, settings.models, kind, **settings.changes(case, side))
    warm_up(trainer, case)
    first = timed_update(trainer, 1)["wall_seconds"] if side == "ours" and case.game != PAPER else 0.0
    if settings.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    line, memory = timed_update(trainer, 2) | work(trainer.played), memory_mb(settings.device)
    required = needed(trainer)
    shares = {
        f"{what}_share_{stage}": required[f"{what}_{stage}"] / line[f"seconds_{stage}"] / rates[f"{what}_per_second"]
        for what in ("operations", "bytes")
        for stage in ("acting", "training")
    }
    row = {"seconds": line["seconds_acting"] + line["seconds_training"], "seconds_of_first": first, **line, "memory_mb": memory}
    return row | shares | {f"{key}_per_second_of_acting": line[key] / line["seconds_acting"] for key in ("tokens", "episodes")}


if __name__ == "__main__":
    main()
