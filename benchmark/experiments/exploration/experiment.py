"""Does a temperature that rises while returns stagnate help the seeds that do?"""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("exploration", "Does a temperature that rises while returns stagnate help?")
