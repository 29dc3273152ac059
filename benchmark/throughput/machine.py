"""Where and with what something was measured: every result file carries this."""

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
    """Seconds, to be subtracted: of the processor for a single thread, which others hardly change; else of the wall."""
    return time.process_time() if torch.get_num_threads() == 1 and not torch.cuda.is_available() else time.perf_counter()


def clock_name() -> str:
    """Which of the two it is."""
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
    """Python and the installed ones of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance() -> dict[str, Any]:
    """What stands beside every measurement: machine, versions and command."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"python -m {module.name}" if module else Path(sys.argv[0]).name
    return {"machine": machine(), "versions": versions(), "command": " ".join([program, *sys.argv[1:]])}


def _processor() -> str:
    """The name in /proc/cpuinfo where there is one: platform knows the architecture only."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
