"""Which settings decide the result, and its spread over seeds? Each changed alone; presets are chosen by this."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("settings", "Which settings decide the result, and its spread over seeds?")
