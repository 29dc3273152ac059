"""The commands that the campaign kills, and the files that each leaves without a kill."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from msgrpo_hub.storage import run_files
from tests.cli.suites import FIRM, SLIPPERY, SNAKE, write_suite
from tests.command import Command, Finished, Running
from tests.files import hashes
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import OWNER
from tests.real.models import real_model
from tests.tiny import save_trainable_model
from tests.training.conftest import TWO
from tests.training.runs import metrics, updates_safe

TRAINING = (
    "train --resume --updates 6 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 4 --lora-rank 4 --threads 1 "
    "--learning-rate 3e-3 --token-budget 256 --eval-every 2 --eval-episodes 4 --test-episodes 4"
)
"""A second with a tiny model."""
OF_THE_BASE = (
    "train --resume --game FrozenLake-NotSlippery-v1 --updates 3 --groups 1 --group-size 6 --selected-per-group 3 "
    "--temperature 2 --max-new-tokens 12 --lora-rank 4 --learning-rate 1e-3 --eval-every 3 --eval-episodes 1 --test-episodes 2 "
    "--threads 1 --save-rollouts"
)
"""Some seconds with the built-in base."""
OF_SMOLLM2 = (
    "train --resume --game FrozenLake-NotSlippery-v1 --teacher optimal --taught 2 --updates 4 --groups 1 --group-size 4 "
    "--selected-per-group 2 --max-new-tokens 12 --learning-rate 1e-3 --eval-every 2 --eval-episodes 2 --test-episodes 2 "
    "--threads 1"
)
"""Behaviour cloning and rewards on a pretrained model in bfloat16."""
ELSEWHERE = """
import errno, fcntl, os, socket, sys
from msgrpo_hub.cli import main
from msgrpo_hub.storage import files as lock
def flock(*given):
    raise OSError(errno.ENOSYS, "this disk has no locks")
fcntl.flock, lock.SILENCE, socket.gethostname = flock, 1.0, lambda: f"host-{os.getpid()}"
main(sys.argv[1:])
"""
"""The `msgrpo` command on a disk without locks, each time on another host."""
HUB_MODULES = ("msgrpo_hub.hub.adapters", "msgrpo_hub.hub.rollouts", "msgrpo_hub.hub.results", "msgrpo_hub.hub.bases")
PATIENCE = 15.0
"""Seconds that the surviving process may wait for the killed one. Then the survivor is killed too, as torchrun does."""


def differences(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The names that have another value, or none, on one side.

    >>> differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b', 'c']
    """
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


@dataclass
class TwoProcesses:
    """The first process, which forks the second. If one dies, the other fails to reach it and ends.

    The survivor waits for a minute if the other dies before both have connected.
    """

    first: Running
    victims: slice
    """The processes that get the signal."""
    both: list[psutil.Process] = field(default_factory=list, init=False)
    reached: bool = field(default=False, init=False)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.first.pid)
            self.both = [first, *first.children()]
            for process in self.both[self.victims]:
                process.send_signal(number)
                self.reached = True

    def wait(self) -> Finished:
        """Waits for the end of both. If a signal reached one and the first failed, that counts as killed."""
        if self.reached:
            _, waiting = psutil.wait_procs(self.both, timeout=PATIENCE)
            for process in waiting:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        ended = self.first.wait()
        psutil.wait_procs(self.both, timeout=120)
        return Finished(-signal.SIGKILL, ended.out, ended.err) if self.reached and ended.code else ended


@dataclass(kw_only=True)
class IntoFolder:
    """A command that fills a folder. It runs once at the start, and the files of this run are expected after a kill."""

    name: str
    start: Callable[[Path], Running | TwoProcesses]
    """Starts the command, or repeats it."""
    left: Callable[[Path], dict[str, object]]
    """Folder → everything that must be equal in it, by name."""
    safe: Callable[[Path], int]
    """Folder → the finished updates or episodes in it."""
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


@dataclass(kw_only=True)
class OntoHub:
    """A push to a Hub on loopback. At every moment, its repository has the old files or all new ones."""

    name: str
    command: Command
    hub: Loopback
    arguments: list[str]
    repo: str
    kind: str
    earlier: list[str] = field(default_factory=list)
    """The arguments of an earlier push; none if empty."""
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

    def start(self, place: Path) -> Running:  # noqa: ARG002
        return self.command.start("push", *self.arguments)

    def files(self) -> dict[str, object]:
        """Path → content on main; empty without a repository."""
        there = (self.kind, self.repo) in self.hub.hub.repositories
        return {**self.hub.files(self.repo, self.kind)} if there else {}

    def state(self) -> dict[str, object]:
        """Files, titles of commits, and the files of each branch and tag."""
        refs = {name: self.hub.files(self.repo, self.kind, name) for name in self.hub.refs(self.repo, self.kind)}
        return {**self.files(), "commits": self.hub.commits(self.repo, self.kind), **refs}

    def safe(self, place: Path) -> int:  # noqa: ARG002
        return len(self.files())

    def torn(self, place: Path) -> list[str]:  # noqa: ARG002
        now = self.files()
        return [] if now == self.before else differences(now, self.complete)

    def unequal(self, place: Path) -> list[str]:  # noqa: ARG002
        return differences(self.state(), self.expected)


Victim = IntoFolder | OntoHub


def left_by_training(folder: Path) -> dict[str, object]:
    """The hash of every file; of metrics and summary, everything without seconds and memory.

    The curves show the seconds too, so only their presence counts.
    """
    if seeds := sorted(folder.glob("seed-*")):
        return {f"{run.name}/{name}": value for run in seeds for name, value in left_by_training(run).items()}
    left: dict[str, object] = {name: digest for name, digest in hashes(folder).items() if not name.startswith(".lock")}
    left |= {"curves.png": (folder / "curves.png").exists()}
    if (folder / "metrics.jsonl").exists():
        left["metrics.jsonl"] = metrics(folder)
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text())
        left["summary.json"] = {name: value for name, value in summary.items() if not name.startswith("seconds")}
    return left


def episodes_safe(folder: Path) -> int:
    """The lines of all logs of an evaluation; complete runs have none."""
    return sum(len(run_files.read_rows(log)) for log in folder.rglob(run_files.LOG))


class Stage:
    """Makes the victims at their first use, and everything that they need: processes, a Hub on loopback, a model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.victims: dict[str, Victim] = {}

    def victim(self, name: str) -> Any:
        if name not in self.victims:
            self.victims[name] = VICTIMS[name](self, name)
        return self.victims[name]

    def of_seed(self, seed: int) -> Victim:
        """The victims take turns."""
        victim: Victim = self.victim(list(VICTIMS)[seed % len(VICTIMS)])
        return victim

    @cached_property
    def commands(self) -> Command:
        """Commands without a network."""
        (self.folder / "commands").mkdir(parents=True)
        return Command(self.folder / "commands")

    @cached_property
    def hub(self) -> Loopback:
        (self.folder / "hub").mkdir(parents=True)
        return Loopback(self.folder / "hub")

    @cached_property
    def pushes(self) -> Command:
        """Commands that use the Hub; the built-in base is there as ada/base."""
        (self.folder / "pushes").mkdir(parents=True)
        command = Command(self.folder / "pushes", self.hub.machine.environment | {"HF_TOKEN": OWNER}, HUB_MODULES)
        ended = command("push", "base", "ada/base")
        assert ended.code == 0, ended.err
        return command

    @cached_property
    def model(self) -> Path:
        """A tiny model that learns."""
        return save_trainable_model(self.folder / "model")

    def stop(self) -> None:
        for name in ("commands", "pushes"):
            if name in vars(self):
                getattr(self, name).server.kill()
        if "hub" in vars(self):
            self.hub.stop()


Maker = Callable[[Stage, str], Victim]


def training(*more: str, of: str = TRAINING, killed: slice | None = None, **how: Any) -> Maker:
    """A training with the arguments `of`, on two processes if `killed` says which of them get the signal.

    `how` has a `program` instead of the command, or what is `safe`.
    """

    def make(stage: Stage, name: str) -> Victim:
        models = {TRAINING: lambda: stage.model, OF_THE_BASE: lambda: "pocket", OF_SMOLLM2: lambda: real_model("smollm2-135m")}
        arguments = [*of.split(), "--model", models[of](), *more]
        faults = {"program": program} if (program := TWO if killed else how.get("program")) else {}

        def start(place: Path) -> Running | TwoProcesses:
            running = stage.commands.start(*arguments, "--output-dir", place, **faults)
            return TwoProcesses(running, killed) if killed else running

        left, safe = {"left": left_by_training, "uninterrupted": stage.folder / name}, how.get("safe", updates_safe)
        return IntoFolder(name=name, start=start, safe=safe, **left)  # type: ignore[arg-type]

    return make


def evaluation(arguments: str, episodes: int) -> Maker:
    def make(stage: Stage, name: str) -> Victim:
        suite = write_suite(stage.folder / f"suite-{episodes}.toml", episodes, FIRM, SLIPPERY, SNAKE)

        def start(place: Path) -> Running:
            return stage.commands.start("eval", *arguments.split(), "--suite", suite, "--output-dir", place)

        left = {"left": hashes, "safe": episodes_safe}
        return IntoFolder(name=name, start=start, uninterrupted=stage.folder / name, **left)  # type: ignore[arg-type]

    return make


def push(kind: str, source: str, repo: str, repo_kind: str, *more: str) -> Maker:
    """A push of the folder of another victim; of results, the second player's after the first's."""

    def make(stage: Stage, name: str) -> Victim:
        folder, earlier = stage.victim(source).uninterrupted, list[str]()
        if kind == "results":
            folder, earlier = folder / "greedy", [kind, str(folder / "random"), repo]
        arguments = [kind, str(folder), repo, *more]
        hub = {"command": stage.pushes, "hub": stage.hub, "repo": repo, "kind": repo_kind}
        return OntoHub(name=name, arguments=arguments, earlier=earlier, **hub)  # type: ignore[arg-type]

    return make


BASE, SCRIPTED = "training of the built-in base", "evaluation of scripted players"
VICTIMS: dict[str, Maker] = {
    "training": training(),
    SCRIPTED: evaluation("random greedy", 60),
    "training with rollouts": training("--save-rollouts"),
    "push of results": push("results", SCRIPTED, "ada/results", "dataset"),
    "training on two processes, the first killed": training("--save-rollouts", killed=slice(0, 1)),
    BASE: training(of=OF_THE_BASE),
    "push of an adapter": push("adapter", BASE, "ada/lake", "model", "--base", "ada/base"),
    "training on two processes, the second killed": training("--save-rollouts", killed=slice(1, 2)),
    "evaluation of the built-in base": evaluation("pocket --max-new-tokens 12 --batch-size 4", 8),
    "push of rollouts": push("rollouts", BASE, "ada/episodes", "dataset"),
    "training on two processes, both killed": training("--save-rollouts", killed=slice(None)),
    "training of two seeds": training("--seeds", "0-1", safe=lambda folder: sum(map(updates_safe, folder.glob("seed-*")))),
    "training on other hosts": training(program=ELSEWHERE),
    "training on two threads": training("--threads", "2"),
    "the final test of a training": training("--updates", "2", "--test-episodes", "150", safe=episodes_safe),
    "training of SmolLM2": training(of=OF_SMOLLM2),
}
"""Name → its maker. The seeds of a campaign take the victims in this order."""
