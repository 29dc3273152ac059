"""The committed results of `make test-long` are those of the tests that are marked `long`, and all of them passed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.long import PACKAGES, RESULTS

TESTS = RESULTS.parent
MARKED = re.compile(r"pytest\.mark\.long\b(?:(?!\ndef ).)*?\ndef (test_\w+)", re.DOTALL)
"""A mark and the test that it belongs to: of a whole test, or of one of its parameters."""


def marked_in(text: str) -> list[str]:
    """The long tests of a file; all of them where the file is marked."""
    return re.findall(r"^def (test_\w+)", text, re.MULTILINE) if "pytestmark = pytest.mark.long" in text else MARKED.findall(text)


def test_every_long_test_has_a_committed_result_and_has_passed() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    marked = {f"{path.relative_to(TESTS.parent)}::{name}" for path in files for name in marked_in(path.read_text())}
    results = json.loads(RESULTS.read_text())
    assert {name.partition("[")[0] for name in results["tests"]} == marked != set()
    assert {test["outcome"] for test in results["tests"].values()} == {"passed"}
    assert set(results["packages"]) == set(PACKAGES)
