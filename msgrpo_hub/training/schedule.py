"""The learning rate of each update."""

from __future__ import annotations

from msgrpo_hub.training.config import TrainConfig


def learning_rate(config: TrainConfig, index: int) -> float:
    """`learning_rate` × linear warm-up × linear decay to `learning_rate_end`; once while it is taught, and once in the rest."""
    before, last = (0, config.taught) if index <= config.taught else (config.taught, config.updates)
    warm = min((index - before) / config.warmup, 1.0) if config.warmup else 1.0
    done = (index - before - 1) / max(last - before - 1, 1)
    return config.learning_rate * warm * (1.0 - (1.0 - config.learning_rate_end) * done)
