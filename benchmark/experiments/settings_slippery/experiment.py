"""Which settings learn the slippery lake, after the dry one? The preset is chosen by this."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("settings_slippery", "Which settings learn the slippery lake, after the dry one?")
