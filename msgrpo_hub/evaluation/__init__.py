"""Evaluation: suites, runs, scores, statistics, comparison and verification. It loads torch only to play a language model."""

from msgrpo_hub.evaluation.comparison import compare
from msgrpo_hub.evaluation.paired import Comparison, compare_paired
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.runner import evaluate
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.statistics import Interval, mean_interval, wilson

__all__ = [
    "Comparison",
    "Interval",
    "compare",
    "compare_paired",
    "evaluate",
    "find_results",
    "mean_interval",
    "score_episode",
    "score_steps",
    "wilson",
]
