"""Every value of the paper's presets has a label; the paper's suite has the same scenarios."""

from __future__ import annotations

import dataclasses

import pytest

from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.training import presets
from msgrpo_hub.training.config import TrainConfig, preset


@pytest.mark.parametrize("name", presets.PAPER_PRESETS)
def test_every_field_of_a_preset_has_a_label(name: str) -> None:
    settings = presets.preset_settings(name)
    assert set(settings) == {field.name for field in dataclasses.fields(TrainConfig)}
    assert not set(presets.SETTINGS) & set(presets.MACHINE)
    assert {setting.origin for setting in settings.values()} == set(presets.ORIGINS)
    assert dataclasses.asdict(preset(name)) == {field: setting.value for field, setting in settings.items()}
    assert set(presets.SCENARIOS) == set(load_suite("paper").tasks)
