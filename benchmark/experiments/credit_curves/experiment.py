"""Does better credit learn faster and more steadily? Learning curves of the credits at equal seconds."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms
from benchmark.experiments.credit_curves.exact import OwnAdvantage
from msgrpo_hub.training.trainer import Trainer


def with_exact_advantage(trainer: Trainer) -> None:
    trainer.credit = OwnAdvantage(trainer)


EXPERIMENT = compare_arms(
    "credit_curves", "Does better credit learn faster and more steadily?", {"exact advantage": with_exact_advantage}
)
