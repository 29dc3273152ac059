"""Floor 5, training: the only floor that changes weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.training.config import TrainConfig
    from msgrpo_hub.training.run import train

__all__ = ["TrainConfig", "train"]


def __getattr__(name: str) -> Any:
    if name == "TrainConfig":
        from msgrpo_hub.training.config import TrainConfig

        return TrainConfig
    if name == "train":
        from msgrpo_hub.training.run import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
