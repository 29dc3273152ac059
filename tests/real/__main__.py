"""`python -m tests.real [-k …]` runs these tests, or a selection, and updates `results.json`."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmark.throughput.rows import machine
from tests.long import PACKAGES, Recorder, package

RESULTS = Path(__file__).with_name("results.json")


def main(arguments: list[str]) -> int:
    recorder = Recorder()
    run = {"date": datetime.now(UTC).date().isoformat(), "msgrpo_hub": package()}
    code = pytest.main(["-m", "real", str(Path(__file__).parent), *arguments], plugins=[recorder])
    others = json.loads(RESULTS.read_text(encoding="utf-8"))["tests"] if RESULTS.exists() and arguments else {}
    record = {
        "cpu": machine()["cpu"],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "tests": dict(sorted((others | {name: run | test for name, test in recorder.tests.items()}).items())),
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
