"""Every value of the paper's presets says who decided it, and every text says the same."""

from __future__ import annotations

import dataclasses

import pytest

from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.training import presets as paper
from msgrpo_hub.training.config import TrainConfig, preset

FIELDS = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
LATER_LABEL = "authors' later experiments"
STATED = {"game", "updates", "groups", "group_size", "selected_per_group", "sampler", "credit", "advantage_scale", "lora_targets"}
STATED |= {"eval_episodes"}
LATER = {"model", "minibatches", "format_penalty", "epsilon_low", "epsilon_up", "gradient_clip", "temperature"}
LATER |= {"eval_temperature", "max_new_tokens", "prompt_format"}


@pytest.mark.parametrize("name", paper.PAPER_PRESETS)
def test_every_field_of_a_preset_has_a_label(name: str) -> None:
    settings = paper.preset_settings(name)
    assert set(settings) == set(FIELDS)
    assert not set(paper.SETTINGS) & set(paper.MACHINE)
    assert {setting.origin for setting in settings.values()} == set(paper.ORIGINS)
    assert dataclasses.asdict(preset(name)) == {field: setting.value for field, setting in settings.items()}


def test_the_scenarios_of_the_paper_are_those_of_its_suite() -> None:
    assert set(paper.SCENARIOS) == set(load_suite("paper").tasks)
