"""A result file that grows row by row. Stored rows are not measured again, so an interrupted run resumes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmark.throughput.cases import Case
from benchmark.throughput.machine import provenance

Key = tuple[Any, ...]
Row = dict[str, Any]


class ResultFile:
    """A JSON file with provenance and rows; each row has a unique key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record: dict[str, Any] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {**provenance(), "rows": []}
        )

    @property
    def rows(self) -> list[Row]:
        found: list[Row] = self.record["rows"]
        return found

    def measure(self, keys: Iterable[Key], measure: Callable[[Key], Row]) -> None:
        """Measures the missing rows in this order and saves after each."""
        done = {tuple(row["key"]) for row in self.rows}
        missing = [key for key in keys if key not in done]
        for key in tqdm(missing, desc=self.path.name, unit="row"):
            tqdm.write(" ".join(map(str, key)), file=sys.stderr)
            self.rows.append({"key": list(key), **measure(key)})
            self.save()

    def save(self) -> None:
        """Replaces the file atomically."""
        beside = self.path.with_name(f".{self.path.name}.new")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(self.record, indent=1) + "\n")
        beside.replace(self.path)


def asked(module: str, about: str | None) -> tuple[argparse.Namespace, ResultFile]:
    """What a module that measures steps of a model is asked on the command line, and its file; torch has the threads then."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmark.throughput.{module}", description=about)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options, ResultFile(options.output)


def in_a_process(side: str, case: Case, models: Path, updates: int, threads: int) -> Row:
    """Runs one measurement in a separate process, so that the peak memory is its own."""
    program = [sys.executable, "-W", "ignore", "-m", "benchmark.throughput.measure", side, json.dumps(asdict(case))]
    program += ["--models", str(models), "--updates", str(updates), "--threads", str(threads)]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": str(threads)}
    )
    if done.returncode:
        raise RuntimeError(f"measuring {side} of {case.name} failed:\n{done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row
