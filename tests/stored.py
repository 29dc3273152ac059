"""Stored runs of the benchmark, unpacked for tests that read real results."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmark.stored import archive_of


@cache
def _place() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def stored_runs(player: str) -> Path:
    """The folder of a player's runs, `<commit>/<task>/<run hash>/`. Copy it before a change."""
    folder = Path(_place().name) / player
    with zipfile.ZipFile(archive_of(player)) as file:
        file.extractall(folder)
    return folder
