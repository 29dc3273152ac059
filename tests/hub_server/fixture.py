"""The fixture `loopback`: an empty Hub in this process. A conftest imports it together with `loopback_server`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub_server.lanes import Loopback


@pytest.fixture(scope="session")
def loopback_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    lane = Loopback(tmp_path_factory.mktemp("loopback"))
    yield lane
    lane.stop()


@pytest.fixture
def loopback(loopback_server: Loopback) -> Iterator[Loopback]:
    """An empty Hub on loopback. A test fails when anything tried to leave the machine, or when the server itself failed."""
    loopback_server.reset()
    yield loopback_server
    strays, crashes = loopback_server.strays(), loopback_server.server.world.crashes
    assert not strays, strays
    assert not crashes, "\n".join(crashes)


@pytest.fixture
def hub(loopback: Loopback) -> Loopback:
    """The same Hub."""
    return loopback
