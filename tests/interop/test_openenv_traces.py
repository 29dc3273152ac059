"""Our training traces are OpenEnv's: its own class takes them, and refuses damaged ones."""

from __future__ import annotations

import json

import pytest

from msgrpo_hub.storage.traces import training_trace
from tests.storage.traced import ORIGIN, of_a_model

training = pytest.importorskip("openenv.core.harness.training")


def test_openenv_takes_our_training_trace_and_keeps_every_token() -> None:
    data, steps = training_trace(of_a_model(), ORIGIN), of_a_model().episode.steps
    trace = training.TrainingTrace.model_validate_json(json.dumps(data))
    assert trace.model_dump() == data
    for turn, step in zip(trace.turns, steps, strict=True):
        assert tuple(turn.prompt_token_ids) == step.completion.prompt_ids
        assert tuple(turn.completion_token_ids) == step.completion.token_ids


@pytest.mark.parametrize("damage", ["loss_mask", "per_token_logps", "prompt_token_ids"])
def test_openenv_refuses_a_trace_with_a_number_less(damage: str) -> None:
    data = training_trace(of_a_model(), ORIGIN)
    assert data
    data["turns"][0][damage].pop()
    with pytest.raises(ValueError, match="invalid training turn"):
        training.TrainingTrace.model_validate_json(json.dumps(data))
