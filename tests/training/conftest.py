"""Runs that were stopped."""

from __future__ import annotations

import shutil
import signal
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


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run of one's own that was killed in its third update."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))
