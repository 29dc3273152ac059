"""The Hub: adapters, rollouts and results with their cards, and the demo. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.hub.adapters import push_adapter
    from msgrpo_hub.hub.leaderboard import read_leaderboard
    from msgrpo_hub.hub.rollouts import load_rollouts, push_rollouts

__all__ = ["load_rollouts", "push_adapter", "push_rollouts", "read_leaderboard"]

_MODULES = {
    "load_rollouts": "rollouts",
    "push_adapter": "adapters",
    "push_rollouts": "rollouts",
    "read_leaderboard": "leaderboard",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
