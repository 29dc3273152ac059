"""Does better credit learn faster and more steadily? Learning curves of the credits at equal seconds."""

from __future__ import annotations

from benchmark.experiments.arms import compare_arms
from benchmark.experiments.credit_curves.learning import learning_curve

EXPERIMENT = compare_arms("credit_curves", "Does better credit learn faster and more steadily?", learning_curve)
