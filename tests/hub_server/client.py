"""Runs functions in a process in which the Hub is another one, and brings back what they return."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LOADS_MODELS = (
    "torch",
    "peft",
    "pandas",
    "transformers.models.qwen2.modeling_qwen2",
    "msgrpo_hub.hub.adapters",
    "msgrpo_hub.training.run",
)
"""`warm` of a module whose functions load or train a model."""
LOADS_DATASETS = ("datasets.arrow_dataset", "datasets.load")
"""`warm` of a module whose functions load a dataset."""


class ClientError(Exception):
    """The function raised. Errors of clients do not survive the way between processes: their name and words do."""

    def __init__(self, name: str, message: str, stderr: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message, self.stderr = name, message, stderr


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a call left behind. `error` is None or the name of an exception; a negative code is the signal that ended it."""

    code: int
    value: Any
    error: str | None
    message: str
    out: str
    err: str


@dataclass
class Process:
    """A worker with settings of its own, started when it is first needed."""

    environment: Mapping[str, str] = field(repr=False)  # may hold secrets, and a failed test shows its values
    folder: Path
    _worker: subprocess.Popen[str] | None = None
    _number: itertools.count[int] = field(default_factory=itertools.count)

    def ask(self, function: str, arguments: bytes, **request: Any) -> Finished:
        if self._worker is None:
            self.folder.mkdir(parents=True)
            program = [sys.executable, str(Path(__file__).with_name("worker.py"))]
            pipe = subprocess.PIPE
            self._worker = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, env=dict(self.environment))
        assert self._worker.stdin
        assert self._worker.stdout
        files = self.folder / str(next(self._number))
        files.mkdir()
        (files / "arguments").write_bytes(arguments)
        print(
            json.dumps({"function": function, "files": str(files), "path": sys.path, **request}),
            file=self._worker.stdin,
            flush=True,
        )
        code = int(self._worker.stdout.readline())
        ended = (files / "result").exists()  # and was not killed
        kind, *what = pickle.loads((files / "result").read_bytes()) if ended else ("none",)
        return Finished(
            code=code,
            value=what[0] if kind == "value" else None,
            error=what[0] if kind == "error" else None,
            message=what[1] if kind == "error" else "",
            out=(files / "stdout").read_text(),
            err=(files / "stderr").read_text(),
        )

    def stop(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker.communicate()


@dataclass(frozen=True)
class Client:
    """Somebody at a machine: a process, and the token that its environment holds (None: nobody is logged in)."""

    process: Process
    token: str | None = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further variables, of each call."""

    def attempt(self, function: Callable[P, Any], *arguments: P.args, **options: P.kwargs) -> Finished:
        """Calls a function over there, whatever comes of it.

        Args:
            function: at the top of a module, so that it can be imported. An attribute `warm` of its module names packages
                that take long to import: they are imported once, by the process that calls fork from.
            arguments: and options, of the function; they must survive pickle.
        """
        assert function.__qualname__.isidentifier(), f"{function.__qualname__} cannot be imported by another process"
        return self.process.ask(
            f"{function.__module__}:{function.__qualname__}",
            pickle.dumps((arguments, options)),
            warm=list(getattr(sys.modules[function.__module__], "warm", ())),
            environment={**self.environment, **({"HF_TOKEN": self.token} if self.token else {})},
            without=[] if self.token else ["HF_TOKEN"],
        )

    def call(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Calls a function over there and returns what it returns.

        Raises:
            ClientError: when it raised, or did not come to its end.
        """
        finished = self.attempt(function, *arguments, **options)
        if finished.error or finished.code:
            raise ClientError(finished.error or f"exit {finished.code}", finished.message, finished.err)
        value: R = finished.value
        return value


def clean_environment() -> dict[str, str]:
    """That of this process, without what the user has set for the Hub and for proxies."""
    prefixes = ("HF_", "HUGGING", "TRANSFORMERS_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and not k.lower().endswith("_proxy")}
