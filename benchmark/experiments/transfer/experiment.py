"""What does an adapter of one game do in another?"""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("transfer", "What does an adapter of one game do in another?")
