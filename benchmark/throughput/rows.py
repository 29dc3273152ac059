"""Measurements: their clock, machine and command line, and a JSON file that grows row by row."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from msgrpo_hub.storage.files import write_json

PACKAGES = ("torch", "transformers", "peft", "trl", "numpy")

Key = tuple[Any, ...]
Row = dict[str, Any]


def clock_name() -> str:
    """The clock in use: processor time for one thread, which other processes hardly affect, else wall time."""
    return "processor" if torch.get_num_threads() == 1 and not torch.cuda.is_available() else "wall"


def clock() -> float:
    """Seconds of that clock."""
    return time.process_time() if clock_name() == "processor" else time.perf_counter()


def machine() -> dict[str, Any]:
    """Processor, cores, threads, clock, load average and GPU."""
    info = Path("/proc/cpuinfo")  # `platform` knows only the architecture
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "clock": clock_name(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        **gpu,
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that matter."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def program() -> str:
    """The running program, as typed."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return f"python -m {module.name}" if module else Path(sys.argv[0]).name


def provenance() -> dict[str, Any]:
    """Machine, versions and command, without the folder of `--models`, which no result depends on."""
    given = sys.argv[1:]
    if "--models" in given:
        place = given.index("--models")
        del given[place : place + 2]
    return {"machine": machine(), "versions": versions(), "command": f"{program()} {shlex.join(given)}"}


def options(arguments: list[str], about: str | None, *, threads: int = 2, **flags: dict[str, Any]) -> argparse.Namespace:
    """The options of a measuring command: OUTPUT, --models, --threads and `flags`. Sets torch's threads.

    Args:
        arguments: the command line.
        about: the text of --help.
        threads: the default number of threads.
        flags: option → arguments of `add_argument`.
    """
    parser = argparse.ArgumentParser(prog=program(), description=about)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--threads", type=int, default=threads)
    for name, settings in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    return given


class ResultFile:
    """A JSON file with provenance and rows; each row has a unique key."""

    def __init__(self, path: Path) -> None:
        self.path, self.record = path, {**provenance(), "rows": []}
        if path.exists():
            self.record = json.loads(path.read_text(encoding="utf-8"))
        self.rows: list[Row] = self.record["rows"]

    def measure(self, keys: Iterable[Key], measure: Callable[[Key], Row]) -> None:
        """Measures the missing rows in this order and saves after each, so that an interrupted run resumes."""
        done = {tuple(row["key"]) for row in self.rows}
        missing = [key for key in keys if key not in done]
        for key in tqdm(missing, desc=self.path.name, unit="row"):
            tqdm.write(" ".join(map(str, key)), file=sys.stderr)
            self.rows.append({"key": list(key), **measure(key)})
            self.save()

    def save(self) -> None:
        """Replaces the file atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.record, sort_keys=False)
