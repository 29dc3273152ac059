"""Runs that were stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.files import once

if TYPE_CHECKING:
    from tests.command import Command


@pytest.fixture(scope="session")
def stopped(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its third update. Not to be changed: copy it."""

    def train(folder: Path) -> None:
        assert msgrpo("train", *flags, "--output-dir", folder, die_at=("Trainer.learn", "call", 3)).code == -signal.SIGKILL

    return once(tmp_path_factory, "stopped-run", train)


LAUNCHER = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
"""By torchrun, since `accelerate launch --cpu` starts one process, whatever --num_processes says."""


@pytest.fixture(scope="session")
def one_and_two(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run by one process and by two, with its episodes, in the folders `one` and `two`; `two.txt` is what two said."""
    arguments = ["train", *flags, "--token-budget", "256", "--learning-rate", "3e-3", "--save-rollouts", "--output-dir"]

    def train(folder: Path) -> None:
        assert msgrpo(*arguments, folder / "one").code == 0
        two = subprocess.run(
            [sys.executable, *LAUNCHER, "-m", "msgrpo_hub", *arguments, str(folder / "two")],
            env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert two.returncode == 0, two.stderr
        (folder / "two.txt").write_text(two.stdout)

    return once(tmp_path_factory, "one-and-two", train)


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run of one's own that was killed in its third update."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))
