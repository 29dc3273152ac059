"""A running Space."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.space.served import Served, serving


@pytest.fixture(scope="session")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("space")) as served:
        yield served
