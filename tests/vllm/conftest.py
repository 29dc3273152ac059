"""Real vLLM servers on this machine's processor, for the tests of `make test-vllm`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm.real import PYTHON, RealServer

collect_ignore_glob = [] if PYTHON in os.environ else ["test_*.py"]


def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Serves the built-in base; the tests share it, and may restart it."""
    with RealServer(Path(tmp_path_factory.mktemp("vllm") / "log")) as server:
        yield server


server = pytest.fixture(serve, scope="session", name="server")
second = pytest.fixture(serve, scope="session", name="second")
