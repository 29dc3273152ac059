"""Nothing is lost or mixed up when many visitors, some of them hostile, ask for a long time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.space import soak
from tests.space.hostile import ATTACKS


def check(found: dict[str, Any]) -> None:
    assert found["clients"] >= 20
    assert found["visitors"].keys() == set(soak.ROLES) - ATTACKS.keys()
    assert found["attacks"].keys() == ATTACKS.keys()
    for kind, figures in found["visitors"].items():
        assert figures["answered"], kind
        assert not figures["wrong"], kind
        assert not figures["lost"], kind
    assert found["visitors"]["bundled"]["refused"] == 0
    assert "taken" not in found["attacks"]["malformed"]
    assert found["errors_of_the_space"] == 0
    assert found["line_afterwards"]["places_free"] == soak.PLACES


@pytest.fixture
def committed() -> dict[str, Any]:
    if not soak.RESULT.exists():
        pytest.skip("nothing measured yet: run `python -m tests.space.soak --minutes 30 --clients 20`, and commit its result")
    found: dict[str, Any] = json.loads(soak.RESULT.read_text(encoding="utf-8"))
    return found


def test_nothing_was_lost_or_mixed_and_memory_stayed_flat(committed: dict[str, Any]) -> None:
    check(committed)
    assert committed["minutes"] >= 20
    assert abs(committed["memory_mib"]["slope_per_hour"]) < 0.1 * committed["memory_mib"]["last"]


def test_a_bundled_replay_took_under_two_seconds_on_two_quiet_cores(committed: dict[str, Any]) -> None:
    p95 = committed["visitors"]["bundled"]["seconds"]["p95"]
    if p95 >= 2 and committed["cores"]["others"] > 0.2:
        pytest.skip("other programs took processors while it was measured: repeat the command on a quiet machine")
    assert p95 < 2
    assert committed["minutes"] >= 30
