"""Runs a job's command for real: in a new folder, with the job's own environment.

uv, which installs packages from an index, is left out, and this Python runs what it would run; unless `JOB_UV` names a uv and
`JOB_WHEEL` a wheel of the package. Then jobs are sent with `--wheel`, and uv installs it with all that it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi

from tests.hub_server.jobs import Job
from tests.hub_server.lanes import QUIET, Loopback

ROOT = Path(__file__).parents[2]
UV, WHEEL = os.environ.get("JOB_UV"), os.environ.get("JOB_WHEEL")
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
        command = self._by_uv(job, place) if UV else self._without_uv(job)
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

    def _without_uv(self, job: Job) -> list[str]:
        command = job.spec["command"]
        assert command[:2] == ["uv", "run"]
        return [sys.executable, "-m", *command[command.index("--module") + 1 :]]

    def _by_uv(self, job: Job, place: Path) -> list[str]:
        """The very command, with the wheel where a job sees it, and this Python in place of the image's."""
        [volume] = job.spec["volumes"]
        found = HfApi(self.loopback.endpoint, token=job.environment["HF_TOKEN"]).snapshot_download(
            volume["source"], allow_patterns=f"{volume['path']}/*", local_dir=place / "volume"
        )
        command = [word.replace(volume["mountPath"], f"{found}/{volume['path']}") for word in job.spec["command"]]
        command[command.index("--python") + 1] = sys.executable
        return [str(UV), *command[1:]]

    def _environment(self, job: Job, place: Path) -> dict[str, str]:
        guard = {
            name: value
            for name, value in self.loopback.machine.environment.items()
            if name.startswith(("MSGRPO_HUB_", "NO_PROXY"))
        }
        own = {"PATH": os.environ["PATH"], "HOME": str(place), "HF_HOME": str(place / ".cache"), "TMPDIR": str(place), **QUIET}
        path = os.pathsep.join([self.loopback.machine.environment["PYTHONPATH"], *([] if UV else [str(ROOT)])])
        of_uv = {name: value for name, value in os.environ.items() if name.startswith("UV_")}
        return {**own, **guard, **of_uv, "PYTHONPATH": path, **job.environment}

    def _watch(self, job: Job, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            if self.preempt(job) or time.monotonic() > end:
                job.lines.append("the machine was taken away")
                os.killpg(process.pid, 9)
                return
            time.sleep(0.1)
