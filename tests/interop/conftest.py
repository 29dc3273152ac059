"""The `msgrpo` command in this process, and servers of environments as processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from tests.cli.suites import Ended, Run
from tests.interop.serving import Served


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> Ended:
        code = 0
        capsys.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return command


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
