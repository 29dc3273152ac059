"""Does learning from a few selected episodes pay? AAW against other samplers and against learning from all."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("selection", "Does learning from a few selected episodes pay?")
