"""A run of three tasks, and a copy to tamper with."""

from __future__ import annotations

from pathlib import Path

import pytest

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result
from tests.evaluation.tampering import SLIPPERY, SUITE, copied


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    evaluate("random", SUITE, folder)
    return folder


@pytest.fixture
def lake(played: Path, tmp_path: Path) -> Result:
    return copied(played, tmp_path, SLIPPERY)
