"""An adapter does something, and a player with one is not its base."""

from __future__ import annotations

from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import identify
from msgrpo_hub.players.settings import PlayerSettings
from tests.hub_server.client import LOADS_MODELS
from tests.players.adapters import SUITE

warm = LOADS_MODELS


# ---- an adapter that was not applied


@pytest.mark.parametrize("name", ["@/runs/idle", "pocket+@/runs/idle", "@/models/base+@/runs/idle"])
def test_an_adapter_that_changes_nothing_is_refused(name: str, place: Path) -> None:
    """Seen elsewhere: an adapter silently not applied, its base measured in its name."""
    with pytest.raises(
        UserError, match=r"the adapter '.*runs/idle' does not change its base: both give the same output"
    ) as caught:
        identify(name.replace("@", str(place)), PlayerSettings())
    assert "\n" not in str(caught.value)


def test_the_probe_measures_what_an_adapter_does_and_leaves_it_switched_on(place: Path) -> None:
    agent = LanguageModel.from_pretrained("pocket", str(place / "runs" / "adapter"))
    effect = agent.adapter_effect()
    assert 1e-4 < effect < 50
    assert agent.adapter_effect() == effect
    assert LanguageModel.from_pretrained("pocket", str(place / "runs" / "idle")).adapter_effect() == 0


def test_an_adapter_that_does_something_plays_otherwise_than_its_base_and_as_it_does_alone(place: Path, tmp_path: Path) -> None:
    settings = PlayerSettings(temperature=0.0, max_new_tokens=12)
    names = ["pocket", str(place / "runs" / "adapter"), f"pocket+{place / 'runs' / 'adapter'}"]
    results = [run_task(identify(name, settings), SUITE, SUITE.tasks[0], tmp_path) for name in names]
    base, alone, both = ([step.completion.text for e in result.episodes for step in e.steps] for result in results)
    assert base != alone == both
    assert len({result.folder for result in results}) == 3
