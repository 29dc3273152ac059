"""Floor 6, the Hub: adapters, rollouts and results with their cards, and the demo. Imports what it needs only when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.hub.adapters import push_adapter
    from msgrpo_hub.hub.leaderboard import read_leaderboard
    from msgrpo_hub.hub.results import push_results
    from msgrpo_hub.hub.rollout_reading import load_rollouts, supervised
    from msgrpo_hub.hub.rollouts import push_rollouts
    from msgrpo_hub.hub.spaces import push_space

__all__ = ["load_rollouts", "push_adapter", "push_results", "push_rollouts", "push_space", "read_leaderboard", "supervised"]

_PLACES = {
    "load_rollouts": "rollout_reading",
    "push_adapter": "adapters",
    "push_results": "results",
    "push_rollouts": "rollouts",
    "push_space": "spaces",
    "read_leaderboard": "leaderboard",
    "supervised": "rollout_reading",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
