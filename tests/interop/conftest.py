"""The `msgrpo` command in this process, and servers of environments in other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.suites import run as run
from tests.interop.serving import Served


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Starts `uvicorn APP` in a folder on a free port; the server ends with the module's tests."""
    servers = []

    def start(app: str, folder: Path) -> Served:
        servers.append(Served(app, folder, tmp_path_factory.mktemp("log") / "server.log"))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
