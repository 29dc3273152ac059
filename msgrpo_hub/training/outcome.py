"""Whether a run learns anything; if not, the likely cause and what to change."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.config import TrainConfig, best_teacher
from msgrpo_hub.training.metrics import Metrics

log = logging.getLogger(__name__)

_MOST = 0.5
"""Share of faulty replies from which they count as the cause."""

_PATIENCE = 3
"""Updates without any advantage after which a run says so."""


def outcome(config: TrainConfig, metrics: Sequence[Metrics], weights: Mapping[str, Tensor]) -> dict[str, str]:
    """What a run, or its rewards, failed to teach: one line with the likely cause and what to change.

    Args:
        config: of the run.
        metrics: of all its updates.
        weights: of the adapter by name. Only the matrices A of LoRA begin with other values than 0.

    Returns:
        The line as `learned_nothing`, or as `rewards_taught_nothing` if a teacher taught the adapter; empty if rewards taught
        something or were not used.
    """
    rewarded = _rewarded(metrics)
    if rewarded and all(_no_advantage(config, line) for line in rewarded):
        told = "rewards_taught_nothing" if len(rewarded) < len(metrics) else "learned_nothing"
        alike = f"in all {len(rewarded) * config.groups} groups every episode had the same return, so there were no advantages"
        return {told: f"{alike}; {_cause(config, rewarded)}"}
    if not config.init_adapter and not any(tensor.any() for name, tensor in weights.items() if "lora_A" not in name):
        return {"learned_nothing": "all matrices B of the adapter are 0, so it is equal to its base: raise --learning-rate"}
    return {}


def check_start(config: TrainConfig, metrics: Sequence[Metrics]) -> None:
    """Warns after three updates in a row without any advantage, unless every episode succeeds.

    Args:
        config: of the run.
        metrics: of its updates so far, which are saved.

    Raises:
        UserError: the first three updates with rewards had no reply that could be parsed, and more are to come. This is raised
            after the third only: a run that is resumed goes on.
    """
    rewarded, index = _rewarded(metrics), len(metrics)
    last = rewarded[-_PATIENCE:]
    streak = len(last) == _PATIENCE and all(_no_advantage(config, line) for line in last)
    if not streak or all(line["success"] == 1 for line in last):
        return
    if len(rewarded) == _PATIENCE and index < config.updates and all(_faulty(line) == 1 for line in last):
        raise UserError(
            f"stopped after update {index}, which is saved, because rewards can teach nothing: {_cause(config, last)}; name "
            "another --output-dir, or add --resume to continue anyway"
        )
    if not (len(rewarded) > _PATIENCE and _no_advantage(config, rewarded[-_PATIENCE - 1])):  # it was not said before
        log.warning("updates %d to %d changed nothing: %s", index - _PATIENCE + 1, index, _cause(config, last))


def _rewarded(metrics: Sequence[Metrics]) -> list[Metrics]:
    """The updates with rewards; those of a teacher have no such figures."""
    return [line for line in metrics if "zero_variance_groups" in line]


def _no_advantage(config: TrainConfig, line: Metrics) -> bool:
    return line["zero_variance_groups"] >= config.groups


def _faulty(line: Metrics) -> float:
    """The share of replies without an action."""
    return line["truncated_rate"] + line["unreadable_rate"]


def _cause(config: TrainConfig, metrics: Sequence[Metrics]) -> str:
    """The likely cause of equal returns, with the advice, the most promising first."""
    names = ("truncated_rate", "unreadable_rate", "success")
    truncated, unparsed, success = (float(np.mean([line[name] for line in metrics])) for name in names)
    if truncated + unparsed < _MOST:
        if success == 1:
            return "every episode succeeded: take a harder --game"
        return "the episodes of a group ended alike: raise --temperature or --group-size, or take an easier --game"
    teach = "start with --teacher auto --taught 20" if best_teacher(config.game) else ""
    teach = f"raise --taught (it was {config.taught})" if config.taught else teach
    tokens = f"raise --max-new-tokens (it was {config.max_new_tokens})" if truncated > unparsed else ""
    bare = config.prompt_format == "action-only"
    advice = [teach, tokens, "take another --prompt-format"] if bare else [tokens, teach, "take --prompt-format action-only"]
    return (
        f"{unparsed:.0%} of the replies could not be parsed and {truncated:.0%} were truncated: "
        f"{', or '.join(filter(None, [*advice, 'take an easier --game']))}"
    )
