"""The example cards, and what the README shows of their run, are what the templates and the stored run give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.hub_server.cards import check_card as check_as_the_hub_does
from tests.test_docs import script

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "model_cards" / "examples"


@pytest.fixture(scope="module")
def rendered() -> dict[Path, str]:
    found: dict[Path, str] = script("cards").rendered()
    return found


def test_no_example_is_stale(rendered: dict[Path, str]) -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in rendered.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `python docs/cards.py`"


def test_the_stored_run_is_that_of_the_built_in_adapter() -> None:
    about = json.loads((ROOT / "msgrpo_hub/pocket/adapters/lake.json").read_text(encoding="utf-8"))
    summary = json.loads((EXAMPLES / "adapter" / "summary.json").read_text(encoding="utf-8"))
    trained = round(summary["seconds_acting"] + summary["seconds_training"])
    reached = (summary["adapter"]["reward"], summary["adapter"]["reward_interval"], trained)
    assert reached == (about["adapter"], about["interval"], about["seconds_training"]), "run `python docs/cards.py RUN`"


@pytest.mark.parametrize("kind", ["adapter", "base", "results", "rollouts"])
def test_the_hub_accepts_every_example_and_its_pictures_are_there_with_words_for_them(kind: str) -> None:
    text = card(kind)
    assert check_as_the_hub_does("model" if kind in ("adapter", "base") else "dataset", text) == ([], [])
    for words, picture in re.findall(r"!\[(.*?)\]\((.*?)\)", text):
        assert (EXAMPLES / kind / picture).exists(), picture
        assert len(words.split()) >= 8, words


def card(kind: str) -> str:
    return (EXAMPLES / kind / "README.md").read_text(encoding="utf-8")
