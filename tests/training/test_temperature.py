"""Updates learn at the temperature that they acted at."""

from __future__ import annotations

from pathlib import Path

import torch

from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.trainer import Trainer
from tests.training.trainers import trainer_of


def largest_log_ratio(trainer: Trainer, index: int) -> float:
    """The largest |log p − log p_old| of the tokens that update `index` would learn from, as the loss computes them."""
    selected = trainer.select(trainer.act(trainer.starts.of_update(index)), index).selected
    found = []
    for packed in trainer.packed(selected):
        with torch.no_grad(), trainer.engine.learning():
            log_probs = trainer.engine.log_probs(packed, trainer.temperature)
        found.append(float((log_probs[packed.tokens] - packed.old_log_probs).abs().max()))
    return max(found)


def test_the_importance_ratio_is_1_at_the_temperature_of_the_play(tiny_model: Path) -> None:
    config = TrainConfig(
        model=str(tiny_model), temperature=1.4, updates=6, groups=2, group_size=8, selected_per_group=8, max_new_tokens=4
    )
    trainer = trainer_of(config)
    assert trainer.update(1).metrics["temperature"] == trainer.agent.temperature == 1.4
    assert largest_log_ratio(trainer, 2) < 1e-5
    trainer.temperature = 1.0
    assert largest_log_ratio(trainer, 2) > 1e-2
