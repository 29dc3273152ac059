"""An experiment: a question, units of work that run in any order, their stored rows, and the page made from the rows."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from matplotlib.figure import Figure
from PIL import Image

from benchmark.throughput.rows import machine, versions
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.storage.files import write_atomically

HERE = Path(__file__).parent
SCRATCH = HERE.parents[1] / "runs" / "experiments"
"""Checkpoints and other large files, by experiment; not committed, safe to delete."""
PAGE, FIGURE, ROWS = "README.md", "figure.png", "rows.json"
DIGEST = "Rows"
"""The field of the figure's metadata with the hash of its rows."""

Settings = Mapping[str, Any]
"""Everything that determines the result of a unit, seeds included, as plain JSON values."""
Values = dict[str, Any]
"""The result of a unit, as plain JSON values."""
Row = dict[str, Any]
"""`settings`, `values`, `cpu_seconds`, `wall_seconds`, `machine` and `versions` of a unit."""


class Experiment:
    """A question and how it is answered: each folder here defines one, `EXPERIMENT` in its experiment.py.

    The functions that write the page get unit → values of the units that have run.
    """

    run: Callable[[Settings], Values]
    """Runs a unit; units may share files in `scratch`."""
    headline: Callable[[Mapping[str, Values]], str]
    """The answer in a few sentences; empty if too few units have run."""
    answer: Callable[[Mapping[str, Values]], str]
    """All findings, as Markdown."""
    tables: Callable[[Mapping[str, Values]], str]
    """The tables behind the answer, as Markdown."""
    figure: Callable[[Mapping[str, Values]], Figure]

    def __init__(self, name: str, question: str, home: Path = HERE, scratch: Path = SCRATCH) -> None:
        self.name, self.question = name, question
        self.folder, self.scratch = home / name, scratch / name

    @cached_property
    def config(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))

    @cached_property
    def units(self) -> dict[str, Settings]:
        """Unit → settings. A stored row is used only if its settings equal these."""
        raise NotImplementedError


def names() -> list[str]:
    """The names of all experiments."""
    return sorted(path.parent.name for path in HERE.glob("*/experiment.py"))


def load(name: str) -> Experiment:
    """The experiment in the folder `name`. Raises `UserError` for an unknown name."""
    if name not in names():
        raise unknown("experiment", name, names())
    experiment: Experiment = importlib.import_module(f"benchmark.experiments.{name}.experiment").EXPERIMENT
    return experiment


def run(experiment: Experiment, units: Mapping[str, Settings], *, again: bool = False) -> None:
    """Runs units in order and stores a row after each.

    Skips units that have a current row, unless `again`, and units that another process is running.
    """
    experiment.scratch.mkdir(parents=True, exist_ok=True)
    for unit, settings in units.items():
        try:
            with FileLock(experiment.scratch / f"{unit}.lock", timeout=0):
                row = stored(experiment.folder).get(unit)
                if row and row["settings"] == settings and not again:
                    continue
                print(f"{experiment.name}: {unit}", file=sys.stderr, flush=True)
                wall, cpu = time.monotonic(), sum(os.times()[:4])  # user and system time, of child processes too
                values = experiment.run(settings)
                spent = {"cpu_seconds": round(sum(os.times()[:4]) - cpu, 2), "wall_seconds": round(time.monotonic() - wall, 2)}
                row = {"settings": dict(settings), "values": values, **spent, "machine": machine(), "versions": versions()}
                with FileLock(experiment.scratch / "rows.lock"):
                    store(experiment.folder, stored(experiment.folder) | {unit: row})
        except Timeout:
            print(f"{experiment.name}: {unit} is running in another process", file=sys.stderr)


def stored(folder: Path) -> dict[str, Row]:
    """Unit → row of all stored rows, current or not."""
    path = folder / ROWS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def store(folder: Path, rows: Mapping[str, Row]) -> None:
    """Writes the rows of an experiment, one per line."""
    text = ",\n".join(f"{json.dumps(unit)}: {json.dumps(rows[unit], sort_keys=True)}" for unit in sorted(rows))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / ROWS, lambda beside: beside.write_text(f"{{\n{text}\n}}\n", encoding="utf-8"))


def read_rows(experiment: Experiment) -> dict[str, Row]:
    """The rows of the units that have run, in the order of the units.

    Raises:
        UserError: a row belongs to no unit, or its settings differ from its unit's.
    """
    rows = stored(experiment.folder)
    for unit, row in rows.items():
        if row["settings"] != experiment.units.get(unit):
            raise UserError(
                f"{unit} in {experiment.folder / ROWS} has other settings than config.toml: expected the same; "
                "run the experiment again, or delete its line"
            )
    return {unit: rows[unit] for unit in experiment.units if unit in rows}


def values_of(rows: Mapping[str, Row]) -> dict[str, Values]:
    """Unit → values."""
    return {unit: row["values"] for unit, row in rows.items()}


def page(experiment: Experiment, rows: Mapping[str, Row]) -> str:
    """The Markdown page: question, answer, figure, tables, and how to run it."""
    values, found, cost = values_of(rows), "Nothing has run yet.\n", f"{len(rows)} of {len(experiment.units)} units have run"
    if rows:
        parts = [experiment.headline(values), experiment.answer(values), f"![{experiment.question}]({FIGURE})"]
        found = "\n\n".join([*filter(None, parts), experiment.tables(values)]) + "\n"
        hours = sum(row["cpu_seconds"] for row in rows.values()) / 3600
        made_on = "; ".join(sorted({f"{row['machine']['cpu']}, torch {row['versions']['torch']}" for row in rows.values()}))
        cost += f", whose raw results are in [rows.json](rows.json). They took {hours:.2f} CPU hours ({made_on})"
    return (
        f"<!-- Made by `python -m benchmark.experiments figures`; change experiment.py instead. -->\n"
        f"# {experiment.question}\n\n{found}\n## How it was run\n\n"
        f"```bash\npython -m benchmark.experiments run {experiment.name}\npython -m benchmark.experiments figures\n```\n\n"
        f"The settings and seeds are in [config.toml](config.toml). {cost}.\n"
    )


def digest(rows: Mapping[str, Row]) -> str:
    """A hash of rows, 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def write_page(experiment: Experiment) -> None:
    """Writes the page, and the figure if any unit has run."""
    rows = read_rows(experiment)
    (experiment.folder / PAGE).write_text(page(experiment, rows), encoding="utf-8")
    if rows:
        figure = experiment.figure(values_of(rows))
        figure.savefig(experiment.folder / FIGURE, dpi=150, metadata={DIGEST: digest(rows)})


def check_page(experiment: Experiment) -> None:
    """Raises `UserError` if the page or the figure does not belong to the stored rows."""
    rows, path, figure = read_rows(experiment), experiment.folder / PAGE, experiment.folder / FIGURE
    remedy = "run `python -m benchmark.experiments figures`"
    if path.read_text(encoding="utf-8") != page(experiment, rows):
        raise UserError(f"{path} differs from its rows: {remedy}")
    if (Image.open(figure).info.get(DIGEST) if figure.exists() else None) != (digest(rows) if rows else None):
        raise UserError(f"{figure} was drawn from other rows: {remedy}")
