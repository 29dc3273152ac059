"""Fixtures: `loopback`, the Hub of our own, and `hub`, which is that one and, where asked for, the real one as well.

A conftest makes them known by importing them. MSGRPO_HUB_LIVE=1 asks for the live lane: the token is that of HF_TOKEN or
of `hf auth login`, the Hub that of HF_ENDPOINT; its repositories have names of their own and are deleted afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.hub_server.lanes import Lane, Live, Loopback, Machine


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


@pytest.fixture(scope="session")
def live_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    if os.environ.get("MSGRPO_HUB_LIVE") != "1":
        pytest.skip("the live lane: set MSGRPO_HUB_LIVE=1 and log in to a Hub")
    from huggingface_hub import get_token

    token = get_token()
    assert token, "MSGRPO_HUB_LIVE=1 needs a token: set HF_TOKEN or run `hf auth login`"
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    machine = Machine(tmp_path_factory.mktemp("live"), {"HF_ENDPOINT": endpoint})
    yield Live(machine, token)
    machine.stop()


@pytest.fixture(params=["loopback", "live"])
def hub(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """A Hub of which a test uses only what every Hub has."""
    if request.param == "loopback":
        yield request.getfixturevalue("loopback")
        return
    live: Live = request.getfixturevalue("live_hub")
    yield live
    live.clean_up()
