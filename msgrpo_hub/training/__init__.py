"""Training: everything that changes weights. Torch loads when a name is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.training.callbacks import Callback
    from msgrpo_hub.training.config import TrainConfig
    from msgrpo_hub.training.run import train

__all__ = ["Callback", "TrainConfig", "train"]

_MODULES = {"Callback": "callbacks", "TrainConfig": "config", "train": "run"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
