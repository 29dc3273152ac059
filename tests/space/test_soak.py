"""The committed result of the soak: no answer is lost or wrong, and memory stays flat."""

from __future__ import annotations

import json

from tests.space import soak
from tests.space.hostile import ATTACKS


def test_no_answer_was_lost_or_wrong_memory_stayed_flat_and_a_bundled_replay_took_under_two_seconds() -> None:
    found = json.loads(soak.RESULT.read_text(encoding="utf-8"))
    assert found["clients"] >= 20
    assert found["minutes"] >= 30
    assert found["visitors"].keys() == set(soak.ROLES) - ATTACKS.keys()
    assert found["attacks"].keys() == ATTACKS.keys()
    for kind, figures in found["visitors"].items():
        assert figures["answered"], kind
        assert not figures["wrong"], kind
        assert not figures["lost"], kind
    assert found["visitors"]["bundled"]["refused"] == 0
    assert found["visitors"]["bundled"]["seconds"]["p95"] < 2
    assert "taken" not in found["attacks"]["malformed"]
    assert found["errors_of_the_space"] == 0
    assert found["line_afterwards"]["places_free"] == soak.PLACES
    assert abs(found["memory_mib"]["slope_per_hour"]) < 0.1 * found["memory_mib"]["last"]
