"""A small configuration, runs that were stopped, and runs by two processes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msgrpo_hub.training import TrainConfig
from tests.files import once

if TYPE_CHECKING:
    from tests.command import Command


@pytest.fixture(scope="session")
def config(tiny_model: Path) -> TrainConfig:
    """Updates of a tiny model that take milliseconds."""
    small = {"updates": 4, "groups": 2, "group_size": 8, "selected_per_group": 4, "max_new_tokens": 4, "lora_rank": 4}
    return TrainConfig(model=str(tiny_model), learning_rate=1e-2, eval_episodes=10, test_episodes=10, **small)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def stopped(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its third update. Copy it before you change it."""

    def train(folder: Path) -> None:
        assert msgrpo("train", *flags, "--output-dir", folder, die_at=("Trainer.gradient", "call", 3)).code == -signal.SIGKILL

    return once(tmp_path_factory, "stopped-run", train)


TWO = """
import os, socket, sys
from msgrpo_hub.cli import main
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
os.environ["ACCELERATE_USE_CPU"] = "true"
second = os.fork()
os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), "0" if second else "1")
main(sys.argv[1:])
if not second:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
"""
"""Two processes with the environment that torchrun gives to each."""


@pytest.fixture(scope="session")
def one_and_two(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with saved episodes by one process and by two, in the folders `one` and `two`; `two.txt` is the output of two."""
    arguments = ["train", *flags, "--token-budget", "256", "--learning-rate", "3e-3", "--save-rollouts", "--output-dir"]

    def train(folder: Path) -> None:
        assert msgrpo(*arguments, folder / "one").code == 0
        two = msgrpo(*arguments, folder / "two", program=TWO)
        assert two.code == 0, two.err
        (folder / "two.txt").write_text(two.out)

    return once(tmp_path_factory, "one-and-two", train)


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the run that was killed in its third update."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))
