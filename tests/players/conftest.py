"""Models and adapters in folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from msgrpo_hub.downloads.names import pocket_path
from tests.files import once
from tests.players.adapters import adapt


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the built-in base under a path with a private name, two adapters of it, and one without effect."""

    def make(home: Path) -> None:
        shutil.copytree(pocket_path(), home / "zaphod" / "models" / "base")
        adapt(str(pocket_path()), home / "zaphod" / "runs" / "adapter", 0.05)
        adapt(str(pocket_path()), home / "zaphod" / "runs" / "idle", 0.0)
        adapt(str(home / "zaphod" / "models" / "base"), home / "zaphod" / "runs" / "of-the-copy", 0.05)

    return once(tmp_path_factory, "home", make) / "zaphod"
