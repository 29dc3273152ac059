"""What the campaign kills: commands, with what each leaves when nobody kills it."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from safetensors import safe_open

from msgrpo_hub.storage import run_files
from tests.command import Command, Finished
from tests.files import sha256
from tests.hub_server.lanes import Loopback
from tests.training.interrupted import metrics, updates_safe


class Killable(Protocol):
    """A command that runs."""

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, unless it has ended."""

    def wait(self) -> Finished:
        """Waits for its end."""


class Victim(Protocol):
    """A command that goes on when it is given again."""

    name: str
    seconds: float
    """How long it takes when nobody kills it."""

    def prepare(self, place: Path) -> None:
        """Makes everything as it is before the first start."""

    def start(self, place: Path) -> Killable:
        """Starts the command, or gives it again."""

    def safe(self, place: Path) -> int:
        """What a kill has left: finished updates, finished episodes, or files on the Hub."""

    def torn(self, place: Path) -> list[str]:
        """What a kill has left and must not; named, as below."""

    def unequal(self, place: Path) -> list[str]:
        """The names of what differs, after its end, from what it leaves when nobody kills it."""


def differences(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The names that have another value, or none, on one side.

    >>> differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b', 'c']
    """
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


# ---- into a folder


@dataclass(kw_only=True)
class IntoFolder:
    """A command that fills a folder. It runs once when this object is made, and what it leaves then is expected."""

    name: str
    start: Callable[[Path], Killable]
    left: Callable[[Path], dict[str, object]]
    """Folder → what must be equal in it, by name."""
    safe: Callable[[Path], int]
    uninterrupted: Path
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        running, began = self.start(self.uninterrupted), time.monotonic()
        ended = running.wait()
        assert ended.code == 0, ended.err
        self.seconds, self.expected = time.monotonic() - began, self.left(self.uninterrupted)

    def prepare(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)

    def torn(self, place: Path) -> list[str]:  # noqa: ARG002
        return []

    def unequal(self, place: Path) -> list[str]:
        return differences(self.left(place), self.expected)


def left_by_training(folder: Path) -> dict[str, object]:
    """The hash of every file; of metrics and summary, all but the seconds and the memory.

    The curves show the seconds too, so only their presence counts. A checkpoint says the digest of what it holds.
    """
    left: dict[str, object] = {name: sha256(folder / name) for name in _files(folder) if not name.startswith(".lock")}
    left |= {"curves.png": (folder / "curves.png").exists()}
    if (folder / "checkpoint.safetensors").exists():
        with safe_open(folder / "checkpoint.safetensors", framework="np") as file:
            left["checkpoint.safetensors"] = file.metadata()
    if (folder / "metrics.jsonl").exists():
        left["metrics.jsonl"] = metrics(folder)
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text())
        left["summary.json"] = {name: value for name, value in summary.items() if not name.startswith("seconds")}
    return left


def left_by_evaluation(folder: Path) -> dict[str, object]:
    """The hash of every file but the seconds."""
    return {name: sha256(folder / name) for name in _files(folder) if Path(name).name != run_files.TIMING}


def _files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def episodes_safe(folder: Path) -> int:
    """The lines of all logs of an evaluation; those of complete runs are gone."""
    return sum(len(run_files.logged(log)) for log in folder.rglob(run_files.LOG))


# ---- onto the Hub


@dataclass(kw_only=True)
class OntoHub:
    """A push, onto a Hub on loopback. Its repository is as before or complete at every moment."""

    name: str
    command: Command
    hub: Loopback
    arguments: list[str]
    """Of `msgrpo push`."""
    repo: str
    kind: str
    earlier: list[str] = field(default_factory=list)
    """A push whose files are there before; none if empty."""
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.prepare(Path())
        self.before, began = self.files(), time.monotonic()
        self.push(self.arguments)
        self.seconds, self.complete, self.expected = time.monotonic() - began, self.files(), self.state()

    def push(self, arguments: list[str]) -> None:
        ended = self.command("push", *arguments)
        assert ended.code == 0, ended.err

    def prepare(self, place: Path) -> None:  # noqa: ARG002
        self.hub.hub.repositories.pop((self.kind, self.repo), None)
        if self.earlier:
            self.push(self.earlier)

    def start(self, place: Path) -> Killable:  # noqa: ARG002
        return self.command.start("push", *self.arguments)

    def files(self) -> dict[str, object]:
        """Path → content on main; empty without a repository."""
        there = (self.kind, self.repo) in self.hub.hub.repositories
        return {**self.hub.files(self.repo, self.kind)} if there else {}

    def state(self) -> dict[str, object]:
        """Files, titles of commits, and what each branch and tag leads to."""
        refs = {name: self.hub.files(self.repo, self.kind, name) for name in self.hub.refs(self.repo, self.kind)}
        return {**self.files(), "commits": self.hub.commits(self.repo, self.kind), **refs}

    def safe(self, place: Path) -> int:  # noqa: ARG002
        return len(self.files())

    def torn(self, place: Path) -> list[str]:  # noqa: ARG002
        now = self.files()
        return [] if now == self.before else differences(now, self.complete)

    def unequal(self, place: Path) -> list[str]:  # noqa: ARG002
        return differences(self.state(), self.expected)


__all__ = [
    "IntoFolder",
    "Killable",
    "OntoHub",
    "Victim",
    "differences",
    "episodes_safe",
    "left_by_evaluation",
    "left_by_training",
    "updates_safe",
]
