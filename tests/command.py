"""The `msgrpo` command and Python programs in separate processes, one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = """
import importlib, json, os, resource, signal, sys, traceback
import pandas  # by pyarrow, for its first column
from msgrpo_hub.cli import main
from msgrpo_hub.training import run, summary
for name in sys.argv[1:]:
    importlib.import_module(name)

def die_at(place, event, times):
    def seen(frame, what, argument):
        nonlocal times
        if what == event:
            times -= 1
            if not times:
                os.kill(os.getpid(), signal.SIGKILL)
        return seen
    sys.settrace(lambda frame, what, argument: seen(frame, what, argument) if frame.f_code.co_qualname == place else None)

for line in sys.stdin:
    request = json.loads(line)
    if child := os.fork():
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(os.path.join(request["files"], name), os.O_RDWR | os.O_CREAT), number)
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(request["seconds"])
    if request.get("largest_file"):
        sys.dont_write_bytecode = True  # Python 3.11 leaves a truncated .pyc where a file may not grow, and other tests import it
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    if request.get("die_at"):
        die_at(*request["die_at"])
    code = 0
    try:
        if request.get("program"):
            sys.argv[1:] = request["arguments"]
            exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
        else:
            main(request["arguments"])
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # without the slow teardown of the interpreter
"""
"""Imports torch and the rest once; each command is a fork, a real process that starts fast."""


@dataclass(frozen=True)
class Finished:
    """The exit status and the output of a command. A negative code is the signal that ended it."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """Standard error without progress bars."""
        lines = (line for line in self.err.splitlines() if line.strip())
        return [line for line in lines if not line.startswith("training:") and not re.search("episode/s|s/episode", line)]


@dataclass
class Running:
    server: subprocess.Popen[str]
    files: Path
    pid: int
    code: int | None = None

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> Finished:
        assert self.server.stdout
        if self.code is None:
            self.code = int(self.server.stdout.readline())
        return Finished(self.code, (self.files / "stdout").read_text(), (self.files / "stderr").read_text())


class Command:
    """`msgrpo` with some arguments, one process at a time.

    Args:
        folder: gets the output.
        environment: of the commands. Default: the tests' environment, without a network.
        modules: imported once, for commands that need more than training.
        seconds: the time limit of a command.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, modules: Sequence[str] = (), seconds: int = 600
    ) -> None:
        self.folder, self.seconds, self.started = folder, seconds, 0
        self.running: Running | None = None
        environment = environment or os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, *arguments: object, stdin: str = "", folder: Path | None = None, **faults: Any) -> Running:
        """Starts a command.

        Args:
            arguments: of the command.
            stdin: text on its standard input.
            folder: its working folder.
            faults: `largest_file` in bytes (writing beyond it fails, as on a full disk), `die_at` (function, "call" or
                "return", n: a SIGKILL at the n-th time), or `program` (Python source instead of the command).
        """
        assert faults.keys() <= {"largest_file", "die_at", "program"}
        assert self.server.stdin
        assert self.server.stdout
        if self.running and self.running.code is None:
            self.running.send(signal.SIGKILL)
            self.running.wait()
        self.started += 1
        files = self.folder / str(self.started)
        files.mkdir()
        (files / "stdin").write_text(stdin)
        request = {"arguments": list(map(str, arguments)), "seconds": self.seconds, **faults}
        request |= {"files": str(files), "folder": str(folder or files)}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        self.running = Running(self.server, files, int(self.server.stdout.readline()))
        return self.running

    def __call__(self, *arguments: object, **given: Any) -> Finished:
        return self.start(*arguments, **given).wait()
