"""Which settings learn Snake? The preset is chosen by this."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("settings_snake", "Which settings learn Snake?")
