"""The committed results of `make test-long` and `make test-real` belong to existing tests, and those tests passed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.long import PACKAGES, RESULTS

TESTS = RESULTS.parent
MARKED = re.compile(r"pytest\.mark\.long\b(?:(?!\ndef ).)*?\ndef (test_\w+)", re.DOTALL)
"""The mark of a test or of one of its parameters, and the test."""


def marked_in(text: str) -> list[str]:
    """The long tests of a file; all of them if the file is marked."""
    return re.findall(r"^def (test_\w+)", text, re.MULTILINE) if "pytestmark = pytest.mark.long" in text else MARKED.findall(text)


def test_every_long_test_has_a_committed_result_and_has_passed() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    marked = {f"{path.relative_to(TESTS.parent)}::{name}" for path in files for name in marked_in(path.read_text())}
    results = json.loads(RESULTS.read_text())
    assert {name.partition("[")[0] for name in results["tests"]} == marked != set()
    assert {test["outcome"] for test in results["tests"].values()} == {"passed"}
    assert set(results["packages"]) == set(PACKAGES)


def test_every_result_on_real_models_passed_unless_transformers_gives_nan() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in (TESTS / "real").glob("test_*.py")}
    tests = {(path, name) for path, text in files.items() for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    results = json.loads((TESTS / "real" / "results.json").read_text(encoding="utf-8"))["tests"]
    assert {name.partition("[")[0] for name in results} <= {f"tests/real/{path.name}::{name}" for path, name in tests}
    other = {name: test["outcome"] for name, test in results.items() if test["outcome"] != "passed"}
    assert all("[gemma-270m-float16-" in name and outcome == "skipped" for name, outcome in other.items()), other
