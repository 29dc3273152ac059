"""A running Space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.space.served import Served, serving


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test here as slow: it starts the Space, or loads its models."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("space")) as served:
        yield served
