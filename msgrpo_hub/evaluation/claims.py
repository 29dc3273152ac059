"""What the configuration of a stored run claims: its harness, its suite and its player, checked before anything is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgrpo_hub.evaluation.suites import HARNESS, built_in_suite
from msgrpo_hub.players.identity_check import identity_problems, is_count

KEYS = {
    *("harness", "player", "identity", "task", "task_hash", "suite", "split", "episodes"),
    *("prompt_format", "prompt_format_hash"),
}
"""Keys of the configuration of every run."""

_BATCHED = ("language model", "entry point")
"""Kinds of players that may compute the replies of a batch together."""


def claim_problems(config: Mapping[str, Any]) -> list[str]:
    """What is wrong with a configuration by itself, as readable messages."""
    if problems := harness_problems(config):
        return problems
    if missing := sorted(KEYS - config.keys()):
        return [f"its configuration lacks {', '.join(missing)}"]
    counts = (config["episodes"], config.get("repeats", 1))
    if not all(map(is_count, counts)) or config["split"] not in ("validation", "test"):
        return ["its configuration has no valid number of episodes or repeats, or another split than validation or test"]
    return [
        *suite_problems(config),
        *(identity_problems(str(config["player"]), config["identity"]) or _batch_problems(config)),
    ]


def harness_problems(config: Mapping[str, Any]) -> list[str]:
    """Whether a configuration is of another version of the harness, as readable messages."""
    harness = config.get("harness")
    if type(harness) is int and harness == HARNESS:
        return []
    return [f"it was made by version {str(harness)[:20]!r} of the harness, this is {HARNESS}"]


def _batch_problems(config: Mapping[str, Any]) -> list[str]:
    """A player whose replies are rounded by its batch says how large the batch was."""
    kind, batch = config["identity"]["kind"], config["identity"].get("batch_size")
    if kind not in _BATCHED or is_count(batch):
        return []
    return [f"its identity is incomplete: {kind} without a valid batch_size"]


def suite_problems(config: Mapping[str, Any]) -> list[str]:
    """Differences between a run and the built-in suite that it names; none for a suite of one's own."""
    suite = built_in_suite(str(config["suite"]))
    if suite is None:
        return []
    claimed = (config["episodes"], config["split"])
    if claimed != (suite.episodes, suite.split):
        has, says = (f"{episodes} {split} episodes" for episodes, split in ((suite.episodes, suite.split), claimed))
        return [f"the suite {suite.name} has {has}, its configuration says {says}: give a suite of your own another name"]
    return [] if config["task"] in suite.tasks else [f"the suite {suite.name} has no task {str(config['task'])[:80]}"]


def unchecked_claims(config: Mapping[str, Any]) -> list[str]:
    """What cannot be checked in a configuration, as readable messages."""
    own = built_in_suite(str(config["suite"])) is None
    return [f"number of episodes not checked: {config['suite']} is not a built-in suite"] if own else []
