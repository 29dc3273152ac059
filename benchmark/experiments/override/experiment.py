"""Does an adapter follow the words of the rules, and what cures it of its habits?"""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms

EXPERIMENT = compare_arms("override", "Does training on several rules make an adapter follow the words?")
