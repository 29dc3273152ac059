"""Floor 4, evaluation: suites, players, runs, references and statistics. Torch is loaded only for a language model."""

from msgrpo_hub.evaluation.comparing import compare
from msgrpo_hub.evaluation.identity import PlayerSettings
from msgrpo_hub.evaluation.runner import evaluate

__all__ = ["PlayerSettings", "compare", "evaluate"]
