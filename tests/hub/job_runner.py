"""Runs a job's command for real: in a new folder, with the job's own environment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hub_server.jobs import Job
from tests.hub_server.lanes import QUIET, Loopback

ROOT = Path(__file__).parents[2]
"""Has the package that runs, unless `JOB_PYTHON` names a Python that has it: an environment in which its wheel is installed."""
PATIENCE = 300.0
"""Seconds for an attempt."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Runs jobs on this machine.

    Every attempt gets a new folder, which is its home, its working folder and its cache, as a new machine would have.
    """

    loopback: Loopback
    folder: Path
    preempt: Callable[[Job], bool] = lambda _: False
    """Asked ten times a second: whether the machine is taken away now, that is, its processes are killed."""

    def __call__(self, job: Job) -> int:
        place = self.folder / job.id / str(job.attempts)
        place.mkdir(parents=True)
        command = self._command(job.spec["command"])
        process = subprocess.Popen(
            command,
            cwd=place,
            env=self._environment(job, place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        watch = threading.Thread(target=self._watch, args=(job, process), daemon=True)
        watch.start()
        assert process.stdout
        for line in process.stdout:
            job.lines.append(line.rstrip("\n"))
        return process.wait()

    def _command(self, command: list[str]) -> list[str]:
        """What uv would run, by `JOB_PYTHON` or this Python: uv itself, which installs packages from an index, is left out."""
        assert command[:2] == ["uv", "run"]
        first = command.index("--module")
        return [os.environ.get("JOB_PYTHON", sys.executable), "-m", *command[first + 1 :]]

    def _environment(self, job: Job, place: Path) -> dict[str, str]:
        guard = {
            name: value
            for name, value in self.loopback.machine.environment.items()
            if name.startswith(("MSGRPO_HUB_", "NO_PROXY"))
        }
        own = {"PATH": os.environ["PATH"], "HOME": str(place), "HF_HOME": str(place / ".cache"), "TMPDIR": str(place), **QUIET}
        installed = "JOB_PYTHON" in os.environ
        path = os.pathsep.join([self.loopback.machine.environment["PYTHONPATH"], *([] if installed else [str(ROOT)])])
        return {**own, **guard, "PYTHONPATH": path, **job.environment}

    def _watch(self, job: Job, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            if self.preempt(job) or time.monotonic() > end:
                job.lines.append("the machine was taken away")
                os.killpg(process.pid, 9)
                return
            time.sleep(0.1)
