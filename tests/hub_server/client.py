"""Runs functions in processes that use the Hub on loopback, and returns their results."""

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

from huggingface_hub import CommitOperationAdd, HfApi

P = ParamSpec("P")
R = TypeVar("R")

LOADS_MODELS = (
    *("torch", "peft", "pandas", "transformers.models.qwen2.modeling_qwen2"),
    *("msgrpo_hub.hub.adapters", "msgrpo_hub.training.run"),
)
"""`warm` of a module whose functions load or train a model."""
LOADS_DATASETS = ("datasets.arrow_dataset", "datasets.load")
"""`warm` of a module whose functions load a dataset."""


class ClientError(Exception):
    """The function raised. Exceptions of clients cannot be pickled, so this has only their name and message."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    code: int
    """Exit status; a negative number is the signal that ended the process."""
    value: Any
    error: str | None
    message: str
    out: str
    err: str


@dataclass
class Process:
    """A worker (see `worker.py`) with its own environment, started when first needed."""

    environment: Mapping[str, str] = field(repr=False)
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
        line = json.dumps({"function": function, "files": str(files), "path": sys.path, **request})
        print(line, file=self._worker.stdin, flush=True)
        code = int(self._worker.stdout.readline())
        returned = (files / "result").exists()  # False if it was killed
        value, error, message = pickle.loads((files / "result").read_bytes()) if returned else (None, None, "")
        out, err = ((files / name).read_text() for name in ("stdout", "stderr"))
        return Finished(code=code, value=value, error=error, message=message, out=out, err=err)

    def stop(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker.communicate()


@dataclass(frozen=True)
class Client:
    process: Process
    token: str | None = field(repr=False)
    """None without a login."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further variables of each call."""

    def attempt(self, function: Callable[P, Any], *arguments: P.args, **options: P.kwargs) -> Finished:
        """Calls a function in the process and returns the outcome.

        Args:
            function: a function at the top of a module. The attribute `warm` of its module names packages that are slow to
                import: the worker imports them once, and forks.
            arguments: arguments and options that can be pickled.
        """
        assert function.__qualname__.isidentifier(), f"{function.__qualname__} cannot be imported by another process"
        return self.process.ask(
            f"{function.__module__}:{function.__qualname__}",
            pickle.dumps((arguments, options)),
            warm=list(getattr(sys.modules[function.__module__], "warm", ())),
            environment={**self.environment, "HF_TOKEN": self.token},
        )

    def call(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Calls a function in the process and returns its value. Raises `ClientError` if it fails."""
        finished = self.attempt(function, *arguments, **options)
        if finished.error or finished.code:
            raise ClientError(f"{finished.error or f'exit {finished.code}'}: {finished.message}\n{finished.err}")
        value: R = finished.value
        return value


def clean_environment() -> dict[str, str]:
    """The environment without the user's settings for the Hub and proxies."""
    prefixes = ("HF_", "HUGGING", "TRANSFORMERS_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and not k.lower().endswith("_proxy")}


def create(repo: str, kind: str = "model", *, private: bool = True) -> None:
    HfApi().create_repo(repo, repo_type=kind, private=private, space_sdk="gradio" if kind == "space" else None)


def put(repo: str, files: dict[str, bytes], kind: str = "model", **options: Any) -> str:
    """Commits files to a repository and creates a missing one. Takes the options of `create_commit`."""
    if not HfApi().repo_exists(repo, repo_type=kind):
        create(repo, kind)
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    return HfApi().create_commit(repo, additions, commit_message="Put", repo_type=kind, **options).oid
