"""Whether a run learned anything; if not, the likely cause and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.metrics import Metrics

_MOST = 0.5
"""Share of faulty replies from which they count as the cause."""


def learned_nothing(config: TrainConfig, metrics: Sequence[Metrics], weights: Mapping[str, Tensor]) -> str:
    """Why a run learned nothing, and what to change, in one line; empty if it learned something.

    Args:
        config: of the run.
        metrics: of all its updates.
        weights: of the adapter by name. Only the matrices A of LoRA begin with other values than 0.
    """
    if all(line.get("zero_variance_groups", 0) >= config.groups for line in metrics):
        groups = len(metrics) * config.groups
        return f"in all {groups} groups every episode had the same return, so there were no advantages; {_cause(config, metrics)}"
    if not config.init_adapter and not any(tensor.any() for name, tensor in weights.items() if "lora_A" not in name):
        return "all matrices B of the adapter are 0, so it is equal to its base: raise --learning-rate"
    return ""


def _cause(config: TrainConfig, metrics: Sequence[Metrics]) -> str:
    """The likely cause of equal returns, with the advice."""
    names = ("truncated_rate", "unreadable_rate", "success")
    truncated, unparsed, success = (float(np.mean([line[name] for line in metrics])) for name in names)
    if truncated >= _MOST:
        return f"{truncated:.0%} of the replies were truncated at {config.max_new_tokens} tokens: raise --max-new-tokens"
    if unparsed >= _MOST:
        return f"{unparsed:.0%} of the replies could not be parsed: take an instruction-tuned --model or another --prompt-format"
    if success == 1:
        return "every episode succeeded: take a harder --game"
    return "the episodes of a group ended alike: raise --temperature or --group-size, or take an easier --game"
