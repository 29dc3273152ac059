"""Does an adapter of the lake follow what it is told of the goal, and what makes it?"""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("override_lake", "Does training in other words make an adapter of the lake follow the words?")
