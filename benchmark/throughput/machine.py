"""Machine and versions of a measurement, which every result file has."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "transformers", "peft", "trl", "numpy")


def clock() -> float:
    """A clock in seconds: processor time for a single thread, which other processes hardly affect; else wall time."""
    return time.process_time() if torch.get_num_threads() == 1 and not torch.cuda.is_available() else time.perf_counter()


def clock_name() -> str:
    """The kind of clock that `clock` reads."""
    return "processor" if torch.get_num_threads() == 1 and not torch.cuda.is_available() else "wall"


def machine() -> dict[str, Any]:
    """Processor, cores, threads, GPU and the load average before the measurement."""
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "clock": clock_name(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        **gpu,
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the relevant installed packages."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance() -> dict[str, Any]:
    """The provenance of a measurement: machine, versions and command."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"python -m {module.name}" if module else Path(sys.argv[0]).name
    return {"machine": machine(), "versions": versions(), "command": " ".join([program, *sys.argv[1:]])}


def _processor() -> str:
    """The processor's name in /proc/cpuinfo if it exists; `platform` knows only the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
