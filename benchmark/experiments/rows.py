"""The raw results of an experiment: one JSON file with a line per unit, written anew when a unit has run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmark.experiments.experiment import HERE, Experiment, Settings, Values
from benchmark.throughput.machine import machine, versions
from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import write_atomically

ROWS = "rows.json"
SCRATCH = HERE.parents[1] / "runs" / "experiments"
"""Checkpoints and other large files, by experiment. Deleting them costs time and nothing else."""

Row = dict[str, Any]
"""`settings`, `values`, `cpu_seconds`, `wall_seconds`, `machine` and `versions` of a unit."""


def run(name: str, experiment: Experiment, folder: Path, scratch: Path, *, again: bool = False) -> None:
    """Runs the units that have no row yet, in order. A unit that another process is running is left to it.

    Args:
        name: of the experiment, for messages.
        experiment: what to run.
        folder: the experiment's folder; rows go to its `rows.json`.
        scratch: a folder for the files that units share.
        again: run the units that have a row as well, and replace it.
    """
    for unit, settings in experiment.units.items():
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(scratch / f"{unit}.lock", timeout=0):
                if again or not is_of(stored(folder).get(unit), settings):
                    print(f"{name}: {unit}", file=sys.stderr, flush=True)
                    row = measured(experiment, settings, scratch)
                    with FileLock(scratch / "rows.lock"):
                        store(folder, stored(folder) | {unit: row})
        except Timeout:
            print(f"{name}: {unit} is running in another process", file=sys.stderr)


def measured(experiment: Experiment, settings: Settings, scratch: Path) -> Row:
    """Runs one unit; its processor time includes that of processes it started."""
    wall, cpu = time.monotonic(), processor_seconds()
    values = experiment.run(settings, scratch)
    spent = {"cpu_seconds": round(processor_seconds() - cpu, 2), "wall_seconds": round(time.monotonic() - wall, 2)}
    return {"settings": dict(settings), "values": values, **spent, "machine": machine(), "versions": versions()}


def processor_seconds() -> float:
    """Processor time of this process and of the processes it has waited for, user and system."""
    return sum(os.times()[:4])


def stored(folder: Path) -> dict[str, Row]:
    """Unit → its row, of an experiment's folder."""
    path = folder / ROWS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def store(folder: Path, rows: Mapping[str, Row]) -> None:
    """Writes the rows of an experiment, each in a line."""
    lines = [f"{json.dumps(unit)}: {json.dumps(rows[unit], sort_keys=True)}" for unit in sorted(rows)]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / ROWS, lambda beside: beside.write_text(text, encoding="utf-8"))


def is_of(row: Row | None, settings: Settings) -> bool:
    """Whether a row is that of a unit with just these settings."""
    return row is not None and bool(row["settings"] == json.loads(json.dumps(settings)))


def read_rows(experiment: Experiment, folder: Path) -> dict[str, Row]:
    """The rows of the units that have run, in the order of the units.

    Raises:
        UserError: a row belongs to no unit, or was made with other settings than its unit has now.
    """
    rows = stored(folder)
    for unit, row in rows.items():
        if unit not in experiment.units or not is_of(row, experiment.units[unit]):
            raise UserError(
                f"{unit} in {folder / ROWS} has other settings than config.toml: expected the same; run the experiment again, or "
                "delete its line"
            )
    return {unit: rows[unit] for unit in experiment.units if unit in rows}


def values_of(rows: Mapping[str, Row]) -> dict[str, Values]:
    """Unit → its values."""
    return {unit: row["values"] for unit, row in rows.items()}


def digest(rows: Mapping[str, Row]) -> str:
    """A hash, 16 hexadecimal digits, of raw results; a figure carries that of the rows it was made from."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
