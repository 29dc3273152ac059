"""Evaluation: suites, runs, scores, statistics, comparison and verification. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.evaluation.comparison import compare
    from msgrpo_hub.evaluation.runner import evaluate

__all__ = ["compare", "evaluate"]

_MODULES = {
    **{"compare": "comparison", "evaluate": "runner", "find_results": "results", "plays": "summary"},
    **dict.fromkeys(("Comparison", "compare_paired"), "paired"),
    **dict.fromkeys(("Interval", "mean_interval", "wilson"), "statistics"),
}
"""Name → its module. The Space uses those that are not in `__all__`."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
