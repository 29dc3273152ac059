"""The victims by name, and what they need: processes to fork from, a Hub on loopback, a suite."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tests.campaign.two_processes import BOTH, FIRST, SECOND, TwoProcesses
from tests.campaign.victims import (
    IntoFolder,
    Killable,
    OntoHub,
    Victim,
    episodes_safe,
    left_by_evaluation,
    left_by_training,
    updates_safe,
)
from tests.cli.suites import FIRM, SLIPPERY, SNAKE, write_suite
from tests.command import Command
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import OWNER
from tests.tiny import save_trainable_model
from tests.training.conftest import TWO

TRAINING = (
    "train --resume --updates 6 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 4 --lora-rank 4 --threads 1 "
    "--learning-rate 3e-3 --token-budget 256 --eval-every 2 --eval-episodes 4 --test-episodes 4"
)
"""A training of a second, with a tiny model."""
OF_THE_BASE = (
    "train --resume --model pocket --game FrozenLake-NotSlippery-v1 --updates 3 --groups 1 --group-size 6 --selected-per-group 3 "
    "--temperature 2 --max-new-tokens 12 --lora-rank 4 --learning-rate 1e-3 --eval-every 3 --eval-episodes 1 --test-episodes 2 "
    "--threads 1 --save-rollouts"
)
"""A training of some seconds, with the built-in base and its episodes saved."""
EVALUATION = "eval pocket --max-new-tokens 12 --batch-size 4"
SCRIPTED = "eval random greedy"


class Stage:
    """Makes the victims, each when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.victims: dict[str, Victim] = {}

    def victim(self, name: str) -> Victim:
        """The victim of a name."""
        if name not in self.victims:
            self.victims[name] = VICTIMS[name](self, name)
        return self.victims[name]

    def of_seed(self, seed: int) -> Victim:
        """The victims take turns."""
        return self.victim(list(VICTIMS)[seed % len(VICTIMS)])

    @cached_property
    def commands(self) -> Command:
        """Commands without a network."""
        return Command(self._new("commands"))

    @cached_property
    def hub(self) -> Loopback:
        return Loopback(self._new("hub"))

    @cached_property
    def pushes(self) -> Command:
        """Commands that use the Hub; the built-in base is there as ada/base."""
        modules = ("msgrpo_hub.hub.adapters", "msgrpo_hub.hub.rollouts", "msgrpo_hub.hub.results", "msgrpo_hub.hub.bases")
        command = Command(self._new("pushes"), self.hub.machine.environment | {"HF_TOKEN": OWNER}, modules)
        ended = command("push", "base", "ada/base")
        assert ended.code == 0, ended.err
        return command

    @cached_property
    def model(self) -> str:
        """The folder of a tiny model that learns."""
        return str(save_trainable_model(self.folder / "model"))

    def trained(self) -> str:
        """The folder of a finished training of the built-in base, with its episodes."""
        return str(self._into_folder("training of the built-in base").uninterrupted)

    def evaluated(self) -> Path:
        """The folder of a finished evaluation of two players."""
        return self._into_folder("evaluation of scripted players").uninterrupted

    def suite(self, episodes: int) -> str:
        path = self.folder / f"suite-{episodes}.toml"
        return str(path if path.exists() else write_suite(path, episodes, FIRM, SLIPPERY, SNAKE))

    def stop(self) -> None:
        for name in ("commands", "pushes"):
            if name in vars(self):
                getattr(self, name).server.kill()
        if "hub" in vars(self):
            self.hub.stop()

    def _into_folder(self, name: str) -> IntoFolder:
        victim = self.victim(name)
        assert isinstance(victim, IntoFolder)
        return victim

    def _new(self, name: str) -> Path:
        (self.folder / name).mkdir(parents=True)
        return self.folder / name


def training_of_the_base(stage: Stage, name: str) -> Victim:
    return _trained(stage, name, lambda place: stage.commands.start(*OF_THE_BASE.split(), "--output-dir", place))


def training(*more: str) -> Callable[[Stage, str], Victim]:
    def make(stage: Stage, name: str) -> Victim:
        arguments = [*TRAINING.split(), "--model", stage.model, *more, "--output-dir"]
        return _trained(stage, name, lambda place: stage.commands.start(*arguments, place))

    return make


def training_on_two(victims: slice) -> Callable[[Stage, str], Victim]:
    def make(stage: Stage, name: str) -> Victim:
        arguments = [*TRAINING.split(), "--model", stage.model, "--save-rollouts", "--output-dir"]
        return _trained(stage, name, lambda place: TwoProcesses(stage.commands.start(*arguments, place, program=TWO), victims))

    return make


def _trained(stage: Stage, name: str, start: Callable[[Path], Killable]) -> Victim:
    return IntoFolder(name=name, start=start, left=left_by_training, safe=updates_safe, uninterrupted=stage.folder / name)


def evaluation(arguments: str, episodes: int) -> Callable[[Stage, str], Victim]:
    def make(stage: Stage, name: str) -> Victim:
        return IntoFolder(
            name=name,
            start=lambda place: stage.commands.start(*arguments.split(), "--suite", stage.suite(episodes), "--output-dir", place),
            left=left_by_evaluation,
            safe=episodes_safe,
            uninterrupted=stage.folder / name,
        )

    return make


def push_of_an_adapter(stage: Stage, name: str) -> Victim:
    arguments = ["adapter", stage.trained(), "ada/lake", "--base", "ada/base"]
    return OntoHub(name=name, command=stage.pushes, hub=stage.hub, arguments=arguments, repo="ada/lake", kind="model")


def push_of_rollouts(stage: Stage, name: str) -> Victim:
    arguments = ["rollouts", stage.trained(), "ada/episodes"]
    return OntoHub(name=name, command=stage.pushes, hub=stage.hub, arguments=arguments, repo="ada/episodes", kind="dataset")


def push_of_results(stage: Stage, name: str) -> Victim:
    """The results of a player, beside those of another that were pushed before."""
    first, second = (["results", str(stage.evaluated() / player), "ada/results"] for player in ("random", "greedy"))
    push = {"command": stage.pushes, "hub": stage.hub, "repo": "ada/results", "kind": "dataset"}
    return OntoHub(name=name, arguments=second, earlier=first, **push)


VICTIMS: dict[str, Callable[[Stage, str], Victim]] = {
    "training": training(),
    "evaluation of scripted players": evaluation(SCRIPTED, 60),
    "training with rollouts": training("--save-rollouts"),
    "push of results": push_of_results,
    "training on two processes, the first killed": training_on_two(FIRST),
    "training of the built-in base": training_of_the_base,
    "push of an adapter": push_of_an_adapter,
    "training on two processes, the second killed": training_on_two(SECOND),
    "evaluation of the built-in base": evaluation(EVALUATION, 8),
    "push of rollouts": push_of_rollouts,
    "training on two processes, both killed": training_on_two(BOTH),
}
"""Name → how it is made, in the order in which they take turns."""
