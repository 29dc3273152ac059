"""Compares whole updates: `python -m benchmark.throughput.update OUTPUT.json`.

Ours against (a) lockstep `model.generate` with a padded batch (`naive.py`), (b) TRL's `GRPOTrainer` (`with_trl.py`,
needs `pip install trl==1.16.0 datasets`) and (c) the limit of the machine (`limit.py`). The sides take turns, each
measurement in its own process. With `--vllm-python`, some cases have a side (d) that samples with vLLM (`with_vllm.py`).
Every row is saved at once; a second run resumes after the last row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from benchmark import ended
from benchmark.throughput.cases import LAKE, PRESETS, SNAKE, Case, adapter_file
from benchmark.throughput.limit import ceilings, limits
from benchmark.throughput.measure import SIDES, in_a_process
from benchmark.throughput.rows import Key, ResultFile, Row, options
from benchmark.throughput.with_vllm import PYTHON
from msgrpo_hub.errors import UserError
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.trainer import Trainer
from tests.real.models import SOURCES

_PAPER: dict[str, Any] = {"groups": 1, "group_size": 100, "drawn": 25}
_SNAKE: dict[str, Any] = {"groups": 8, "group_size": 16, "drawn": 4}
_FORCED: dict[str, Any] = {"groups": 1, "group_size": 32, "drawn": 8}
_ACTION: dict[str, Any] = {**_FORCED, "prompt_format": "action-only", "limit": 12, "policy_updates": 10}
_THOUGHTS: dict[str, Any] = {**_FORCED, "limit": 64, "policy_updates": 10}
_SMOL: dict[str, Any] = {"game": LAKE, "model": "smollm2-135m"}
_QWEN: dict[str, Any] = {"game": LAKE, "model": "qwen-0.5b"}
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
    "lake, SmolLM2": Case(**_SMOL, dtype="float32", **_ACTION),
    "lake, SmolLM2 in bfloat16": Case(**_SMOL, dtype="bfloat16", **_ACTION),
    "lake, SmolLM2 in bfloat16, thoughts": Case(**_SMOL, dtype="bfloat16", **_THOUGHTS),
    "lake, Qwen-0.5B in bfloat16": Case(**_QWEN, dtype="bfloat16", **_ACTION),
    "lake, 0.5B in bfloat16, 256 tokens": Case(game=LAKE, dtype="bfloat16", reply=256, **_LARGE, horizon=1),
}
"""Label → case: the presets' layouts, a quarter of them, later policies, G' = G, the paper's layout, forced replies, pretrained
models that have learned the format, and a large model with random weights."""
MAIN = ("lake", "snake")
"""The presets' layouts; they are measured several times, and on a merged side."""
WITH_VLLM = (*MAIN, *(label for label in CASES if "tokens" in label and label.startswith("lake")))
"""The cases of side (d); it takes a minute to start."""


def keys(labels: Sequence[str], repeats: int, vllm: bool) -> list[Key]:
    """(label, side, round), alternating between sides; then the limit of each case in float32, the precision of the ceilings.

    Every case is measured once before any is measured twice. TRL cannot select episodes: its work is ours with G' = G.
    """
    found: list[Key] = []
    for turn in range(repeats):
        for label in labels if turn == 0 else (label for label in labels if label in MAIN):
            others = ["naive", *["merged"] * (label in MAIN), *["vllm"] * (vllm and label in WITH_VLLM), "trl"]
            found += [(label, side, turn) for side in ("ours", *(others if "G' = G" not in label else ()))]
    return [*found, *((label, "limit", 0) for label in labels if not CASES[label].dtype)]


def prepare(cases: Sequence[Case], models: Path) -> None:
    """Makes the models with random weights and the adapters of the trained policies."""
    models.mkdir(parents=True, exist_ok=True)
    for case in cases:
        case.config(models)  # makes its model
        path = adapter_file(case, models)
        if case.policy_updates and not path.exists():
            settings = preset(PRESETS[case.game])
            if case.model in SOURCES:
                thoughts = case.prompt_format != "action-only"
                lesson = {"teacher": "auto", "teacher_thoughts": thoughts, "taught": case.policy_updates}
                settings = case.config(models, **lesson, groups=8, learning_rate=5e-4)
            trainer = Trainer(settings, Accelerator(cpu=not torch.cuda.is_available()))
            for index in range(1, case.policy_updates + 1):
                trainer.update(index)
            save_file({name: parameter.detach().cpu() for name, parameter in trainer.parameters.items()}, path)


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One line per case: medians over the rounds of each side, and the ratios."""
    lines = []
    for label in dict.fromkeys(row["key"][0] for row in rows):
        line: dict[str, Any] = {"label": label}
        for side in (*SIDES, "limit"):
            found = [row for row in rows if row["key"][:2] == [label, side]]
            fields = [key for key in (found[-1] if found else {}) if key not in ("key", "updates")]
            line |= {f"{side}_{key}": median(row[key] for row in found if key in row) for key in fields}
        if ours := line.get("ours_seconds"):
            sides = [side for side in ("naive", "merged", "vllm", "trl") if f"{side}_seconds" in line]
            line |= {f"ratio_{side}": line[f"{side}_seconds"] / ours for side in sides}
            if "limit_bound_seconds_acting" in line:
                line["share_of_limit"] = (line["limit_bound_seconds_acting"] + line["limit_bound_seconds_training"]) / ours
        lines.append(line)
    return lines


def main(arguments: list[str]) -> None:
    """Measures the missing rows of the file, then writes its table."""
    given = options(
        arguments,
        __doc__,
        only={"nargs": "*", "default": list(CASES), "choices": list(CASES), "metavar": "LABEL", "help": "cases"},
        rounds={"type": int, "default": 3},
        updates={"type": int, "default": 1, "help": "timed updates per round"},
        vllm_python={"type": Path, "help": "the interpreter of vLLM's environment; without it, (d) is left out"},
    )
    if given.vllm_python:
        if given.threads == 1:
            raise UserError("--vllm-python with --threads 1: processor time omits vLLM's process; expected --threads 2 or more")
        os.environ[PYTHON] = str(given.vllm_python)
    file = ResultFile(given.output)
    prepare([CASES[label] for label in given.only], given.models)
    file.record.setdefault("ceilings", ceilings())

    def measure(key: Key) -> Row:
        label, side, _ = key
        if side == "limit":
            return limits(CASES[label], given.models, file.record["ceilings"])
        return in_a_process(side, CASES[label], given.models, given.updates, given.threads)

    file.measure(keys(given.only, given.rounds, vllm=bool(given.vllm_python)), measure)
    file.record["table"] = table(file.rows)
    file.save()
    for line in file.record["table"]:
        ratios = [f"{line[f'ratio_{side}']:.1f}x against {side}" for side in SIDES if f"ratio_{side}" in line]
        print(f"{line['label']}: {line['ours_seconds']:.2f} s, {', '.join(ratios)}")


if __name__ == "__main__":
    ended(main)
