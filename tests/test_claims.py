"""The page of claims: each claim has its command, its n, its test, its limits and a sentence whose gaps the command fills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "guide" / "claims.md").read_text(encoding="utf-8")
CLAIMS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
GIVEN = {
    "n",
    "first",
    "second",
    "difference",
    "task",
    "interval",
    "p",
    "hypotheses",
    "tasks",
    "seeds",
    "score",
    "trained",
    "boards",
}


def test_the_page_has_the_four_claims() -> None:
    assert list(CLAIMS) == [
        "This checkpoint plays better than that one",
        "This method is better than that one",
        "It follows its instructions",
        "It generalises",
    ]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_has_command_n_test_and_a_sentence(claim: str) -> None:
    text = CLAIMS[claim]
    [commands] = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    assert "msgrpo compare" in commands  # parsed by the tests of the documentation
    assert "- **n**:" in text
    assert "- **Test**:" in text
    [sentence] = re.findall(r"(?:^> .*\n?)+", text, re.MULTILINE)
    gaps = set(re.findall(r"\{(\w+)\}", sentence))
    assert {"difference", "task", "p"} <= gaps <= GIVEN
    assert not re.search(r"\d\.\d", sentence.replace("95 %", ""))


def test_no_number_that_a_command_computes_is_typed() -> None:
    prose = re.sub(r"<!-- table.*?<!-- end of table -->|^> .*?$|```.*?```|`[^`]*`", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"\b\d+(?:\.\d+)?\b", prose)) <= {"8", "10", "0.1", "0.5"}  # power, and the heads of columns
