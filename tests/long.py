"""`python -m tests.long [FILE…]`: runs the tests marked `long` and writes the committed file `tests/long.json`.

Each result has the date and the git tree of the package, because not all come from one run.
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
from typing import Any

import pytest

RESULTS = Path(__file__).with_name("long.json")
PACKAGES = ("numpy", "scipy", "torch", "transformers", "peft", "gymnasium")


class Recorder:
    """A pytest plugin that collects the outcome, the seconds and the recorded properties of each test."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            measured = {"outcome": report.outcome, "seconds": round(report.duration, 1)}
            self.tests[report.nodeid] = measured | dict(report.user_properties)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def package() -> str:
    """The git tree of the package, with `-dirty` if its files differ."""
    return git("rev-parse", "HEAD:msgrpo_hub") + ("-dirty" if git("status", "--porcelain", "msgrpo_hub") else "")


def main(paths: list[str]) -> int:
    """Runs the long tests of some files, by default of all. Other results stay."""
    recorder, run = Recorder(), {"date": datetime.now(UTC).date().isoformat(), "msgrpo_hub": package()}
    code = pytest.main(["-m", "long", "-n", "2", "--dist", "worksteal", *(paths or ["tests"])], plugins=[recorder])
    others = json.loads(RESULTS.read_text())["tests"] if paths else {}
    record = {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "cores": os.cpu_count(),
        "tests": dict(sorted((others | {name: run | test for name, test in recorder.tests.items()}).items())),
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
