"""Fixtures of several rooms: a browser, a tiny model, the `msgrpo` command, and a run of it that takes a second."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser import chromium, open_page
from tests.command import Command
from tests.files import once

__all__ = ["chromium", "open_page"]

# A machine under load has no time limits, and CI tries the same examples every time.
settings.register_profile("msgrpo", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("msgrpo")


@pytest.fixture(autouse=True)
def _loggers_as_in_a_fresh_process() -> None:
    """Some library that a test before has loaded may have silenced them."""
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("msgrpo_hub") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def msgrpo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(tmp_path_factory.mktemp("commands"))
    yield command
    command.server.kill()
    command.server.communicate()  # closes its pipes


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model that learns. Not to be changed: copy it."""
    from tests.tiny import save_trainable_model  # imports torch, for which other tests need not wait

    return once(tmp_path_factory, "tiny-model", save_trainable_model)


@pytest.fixture(scope="session")
def flags(tiny_model: Path) -> list[str]:
    """Flags of a run of a second: six updates, evaluated at every second."""
    small = (
        "--updates 6 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 4 --lora-rank 4 --learning-rate 1e-2 "
        "--token-budget 512 --eval-every 2 --eval-episodes 4 --test-episodes 4"
    )
    return ["--model", str(tiny_model), *small.split()]


@pytest.fixture(scope="session")
def finished_run(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of these flags. Not to be changed: copy it."""

    def train(folder: Path) -> None:
        assert msgrpo("train", *flags, "--output-dir", folder).code == 0

    return once(tmp_path_factory, "finished-run", train)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)
