"""Compares whole updates: `python -m benchmark.throughput.update OUTPUT.json`.

Ours against (a) lockstep `model.generate` with a padded batch (`naive.py`), (b) TRL's `GRPOTrainer` (`with_trl.py`,
needs `pip install trl==1.16.0 datasets`) and (c) the limit of the machine (`limit.py`). The sides take turns, each
measurement in a separate process. With `--vllm-python`, some cases have a side (d) that acts by vLLM (`with_vllm.py`).
Every row is saved as it is measured; a second run resumes after the last row.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from benchmark.throughput.cases import PRESETS, Case, adapter_file
from benchmark.throughput.limit import ceilings, limits
from benchmark.throughput.measure import SIDES
from benchmark.throughput.rows import Key, ResultFile, Row, in_a_process
from benchmark.throughput.with_vllm import PYTHON
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.trainer import Trainer

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
_PAPER: dict[str, Any] = {"groups": 1, "group_size": 100, "drawn": 25}
_SNAKE: dict[str, Any] = {"groups": 8, "group_size": 16, "drawn": 4}
_FORCED: dict[str, Any] = {"groups": 1, "group_size": 32, "drawn": 8}
_LARGE: dict[str, Any] = {"model": "qwen2.5-0.5b", "groups": 1, "group_size": 8, "drawn": 2}

CASES = {
    "lake": Case(game=LAKE),
    "snake": Case(game=SNAKE, **_SNAKE),
    "lake, 2 groups": Case(game=LAKE, groups=2),
    "snake, 2 groups": Case(game=SNAKE, **{**_SNAKE, "groups": 2}),
    "lake, later": Case(game=LAKE, policy_updates=20),
    "snake, later": Case(game=SNAKE, **_SNAKE, policy_updates=10),
    "lake, G' = G": Case(game=LAKE, drawn=32),
    "snake, G' = G": Case(game=SNAKE, **{**_SNAKE, "drawn": 16}),
    "lake, G = 100": Case(game=LAKE, **_PAPER, policy_updates=20),  # a group of the base has no variance
    "snake, G = 100": Case(game=SNAKE, **_PAPER),
    **{
        f"{name}, {reply} tokens": Case(game=game, reply=reply, **_FORCED)
        for reply in (8, 64, 256)
        for name, game in (("lake", LAKE), ("snake", SNAKE))
    },
    **{
        f"{name}, 0.5B, {reply} tokens": Case(game=game, reply=reply, **_LARGE, horizon=1 if reply == 256 else 2)
        for reply in (8, 64, 256)
        for name, game in (("lake", LAKE), ("snake", SNAKE))
    },
    "lake, 0.5B in bfloat16, 256 tokens": Case(game=LAKE, dtype="bfloat16", reply=256, **_LARGE, horizon=1),
}
"""Label → case: the presets' layouts, a quarter of them, later policies, G' = G, the paper's layout, forced replies, and a
large model."""


WITH_VLLM = ("lake", "snake", *(label for label in CASES if "tokens" in label and label.startswith("lake")))
"""The cases that are also measured with vLLM, whose start takes a minute."""


def sides(label: str, vllm: bool) -> list[str]:
    """The sides that are measured for a case, with or without vLLM at hand."""
    if "G' = G" in label:
        return ["ours"]  # the same work as TRL, which cannot select episodes
    merged = ["merged"] if label in ("lake", "snake") else []
    return ["ours", "naive", *merged, *(["vllm"] if vllm and label in WITH_VLLM else []), "trl"]


def rounds(label: str, wanted: int) -> int:
    """The presets' layouts are measured several times, the others once."""
    return wanted if label in ("lake", "snake") else 1


def keys(labels: Sequence[str], repeats: int, vllm: bool) -> list[Key]:
    """(label, side, round), alternating between sides; then the limit of each case in float32, the precision of the ceilings."""
    cases = [(label, turn) for turn in range(repeats) for label in labels if turn < rounds(label, repeats)]
    turns: list[Key] = [(label, side, turn) for label, turn in cases for side in sides(label, vllm)]
    return [*turns, *((label, "limit", 0) for label in labels if not CASES[label].dtype)]


def prepare(cases: Sequence[Case], models: Path) -> None:
    """Makes the models with random weights and the adapters of the trained policies."""
    models.mkdir(parents=True, exist_ok=True)
    for case in cases:
        case.base(models)
        path = adapter_file(case, models)
        if case.policy_updates and not path.exists():
            trainer = Trainer(preset(PRESETS[case.game]), Accelerator(cpu=not torch.cuda.is_available()))
            for index in range(1, case.policy_updates + 1):
                trainer.update(index)
            save_file({name: parameter.detach().cpu() for name, parameter in trainer.parameters.items()}, path)


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One line per case: medians over the rounds of each side, and the ratios."""
    lines = []
    for label in dict.fromkeys(row["key"][0] for row in rows):
        of_side = {side: [row for row in rows if row["key"][:2] == [label, side]] for side in (*SIDES, "limit")}
        line: dict[str, Any] = {"label": label}
        for side, found in of_side.items():
            keep = [key for key in (found[-1] if found else {}) if key not in ("key", "updates")]
            line |= {f"{side}_{key}": median(row[key] for row in found if key in row) for key in keep}
        for side in ("naive", "merged", "vllm", "trl"):
            if f"{side}_seconds" in line and "ours_seconds" in line:
                line[f"ratio_{side}"] = line[f"{side}_seconds"] / line["ours_seconds"]
        if "limit_bound_seconds_acting" in line and "ours_seconds" in line:
            limit = line["limit_bound_seconds_acting"] + line["limit_bound_seconds_training"]
            line["share_of_limit"] = limit / line["ours_seconds"]
        lines.append(line)
    return lines


def main() -> None:
    """Measures the missing rows of the file, then writes its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.update", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="LABEL", help="cases")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=1, help="that are timed in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vllm-python", type=Path, help="the interpreter of vLLM's environment; without it, (d) is left out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.vllm_python:
        if options.threads == 1:
            parser.error("--vllm-python with --threads 1: processor time leaves out vLLM's process; expected --threads 2 or more")
        os.environ[PYTHON] = str(options.vllm_python)
    file = ResultFile(options.output)
    # In order of priority within a round: every case is measured once before any case twice.
    prepare([CASES[label] for label in options.only], options.models)
    file.record.setdefault("ceilings", ceilings())

    def measure(key: Key) -> Row:
        label, side, _ = key
        if side == "limit":
            return limits(CASES[label], options.models, file.record["ceilings"])
        return in_a_process(side, CASES[label], options.models, options.updates, options.threads)

    file.measure(keys(options.only, options.rounds, vllm=bool(options.vllm_python)), measure)
    file.record["table"] = table(file.rows)
    file.save()
    for line in file.record["table"]:
        ratios = [f"{line[f'ratio_{side}']:.1f}x against {side}" for side in SIDES if f"ratio_{side}" in line]
        print(f"{line['label']}: {line['ours_seconds']:.2f} s, {', '.join(ratios)}")


if __name__ == "__main__":
    main()
