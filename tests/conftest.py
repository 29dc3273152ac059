"""Fixtures of several rooms: a browser, a tiny model, and the `msgrpo` command that trains it in a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium, open_page
from tests.command import Command

__all__ = ["chromium", "open_page"]


@pytest.fixture(scope="session")
def msgrpo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(tmp_path_factory.mktemp("commands"))
    yield command
    command.server.kill()
    command.server.wait()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model that learns. Not to be changed: copy it."""
    from tests.tiny import save_trainable_model  # imports torch, for which other tests need not wait

    return save_trainable_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def flags(tiny_model: Path) -> list[str]:
    """Flags of a run of a second: six updates, evaluated at every second."""
    small = (
        "--updates 6 --groups 2 --group-size 6 --drawn 3 --max-new-tokens 4 --lora-rank 4 --learning-rate 1e-2 "
        "--token-budget 512 --eval-every 2 --eval-episodes 4 --test-episodes 4"
    )
    return ["--model", str(tiny_model), *small.split()]
