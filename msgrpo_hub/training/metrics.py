"""What is measured in each update, and where it goes: `metrics.jsonl`, and any tracker of accelerate."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil
import torch
from accelerate.utils import gather_object
from torch import Tensor

from msgrpo_hub.credit import StepAdvantages
from msgrpo_hub.episode import Completion, Episode, Group, known_sum
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import misfit

Metrics = dict[str, float]


def play_metrics(
    groups: Sequence[Group], returns: Sequence[Tensor], advantages: StepAdvantages, seconds: float, games: int = 1
) -> Metrics:
    """The figures of acting: rewards, rates per step, entropy per token (nats), and speed.

    Args:
        groups: the groups of an update.
        returns: per group (G,), the composite returns C. Advantages come from their spread within a group.
        advantages: per group and episode, what the credit gave each step.
        seconds: spent acting.
        games: of the run; of several, each game of this update has figures of its own.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    steps = [step for episode in episodes for step in episode.steps]
    tokens = sum(len(step.completion.token_ids) for step in steps)
    spreads = [np.std([episode.reward for episode in group.episodes]) for group in groups]
    near = known_sum([episode.near_draws for episode in episodes])  # servers do not say
    return {
        "reward": float(np.mean([episode.reward for episode in episodes])),
        "reward_std": float(np.mean(spreads)),
        "composite_return": float(torch.cat([*returns]).mean()),
        "composite_return_std": float(np.mean([float(of_group.std(correction=0)) for of_group in returns])),
        "success": float(np.mean([episode.success for episode in episodes])),
        "zero_variance_groups": float(sum(not any(bool(steps.any()) for steps in of_group) for of_group in advantages)),
        **reply_rates(episodes),
        "entropy": sum(_entropy(step.completion) for step in steps) / max(tokens, 1),
        **({} if near is None else {"near_draws": float(near)}),
        "distinct_prompt_ratio": len({step.completion.prompt_ids for step in steps}) / len(steps),
        "episodes_per_second": len(episodes) / seconds,
        "tokens_per_second": tokens / seconds,
        "seconds_acting": seconds,
        **(_by_game(episodes) if games > 1 else {}),
    }


def ratio_metrics(ratios: Sequence[Tensor], processes: int = 1) -> Metrics:
    """The 1 % and 99 % quantiles of p_θ / p_old over the tokens of an optimiser step; empty if nothing was sampled.

    Before the first step on a batch the ratio is 1 but for rounding: sampling and training compute in another order. In 16 bits
    this shows how far rounding alone moves the loss.
    """
    parts = [*ratios] if processes == 1 else [part for own in gather_object([[*ratios]]) for part in own]
    if not parts:
        return {}
    low, high = np.quantile(torch.cat(parts).double().numpy(), [0.01, 0.99])
    return {"ratio_q01": float(low), "ratio_q99": float(high)}


def teacher_metrics(groups: Sequence[Group]) -> Metrics:
    """What a teacher reaches. The policy's own figures are missing from an update that is taught: it has not played."""
    episodes = [episode for group in groups for episode in group.episodes]
    return {
        "teacher_reward": float(np.mean([episode.reward for episode in episodes])),
        "teacher_success": float(np.mean([episode.success for episode in episodes])),
    }


def _entropy(reply: Completion) -> float:
    """The summed entropies of a reply's tokens; where a server samples, their estimate −Σ log p, which is right in the mean."""
    return sum(reply.entropies) if reply.entropies else -sum(reply.log_probs)


def _by_game(episodes: Sequence[Episode]) -> Metrics:
    """Reward and success of each game."""
    games = {name: [e for e in episodes if e.game_id == name] for name in dict.fromkeys(e.game_id for e in episodes)}
    rewards = {f"reward/{name}": float(np.mean([e.reward for e in of_game])) for name, of_game in games.items()}
    successes = {f"success/{name}": float(np.mean([e.success for e in of_game])) for name, of_game in games.items()}
    return rewards | successes


def reply_rates(episodes: Sequence[Episode]) -> Metrics:
    """Shares of steps whose reply was unreadable, cut at the limit, or an action that is not legal."""
    steps = [step for episode in episodes for step in episode.steps]
    return {
        "unreadable_rate": sum(step.status == "unreadable" for step in steps) / len(steps),
        "truncated_rate": sum(step.status == "truncated_reply" for step in steps) / len(steps),
        "illegal_rate": sum(step.action is not None and not step.legal for step in steps) / len(steps),
    }


def memory_mb(device: str) -> float:
    """Peak memory in MB: of a GPU with memory of its own, else of the process.

    Args:
        device: the kind of the device that computes, such as `cpu`.
    """
    if device in ("cuda", "xpu"):
        return float(torch.get_device_module(device).max_memory_allocated() / 1e6)
    if sys.platform == "win32":
        return float(psutil.Process().memory_info().peak_wset / 1e6)
    import resource  # Windows has no such module; elsewhere psutil knows no peak

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def append_metrics(path: Path, metrics: Mapping[str, float]) -> None:
    """Appends one line, and makes sure that it is on the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(path: Path, updates: int | None = None) -> list[Metrics]:
    """The lines of a metrics file, one per update; a torn last line is left out.

    Args:
        path: of the file.
        updates: how many lines are wanted, all of which must be there; None is all that are there.

    Raises:
        UserError: a line is missing or damaged.
    """
    written = path.read_bytes().splitlines()[:updates] if path.exists() else []
    lines = [_metrics(line, number) for number, line in enumerate(written, start=1)]
    if lines and lines[-1] is None and updates is None:
        lines.pop()
    whole = [line for line in lines if line is not None]
    if len(whole) < max(len(lines), updates or 0):
        damaged = next((number for number, line in enumerate(lines, start=1) if line is None), len(lines) + 1)
        raise UserError(
            f"{str(path)!r} has no readable line of update {damaged}: expected one per update; put the file back, or train "
            "again in another folder"
        )
    return whole


def _metrics(line: bytes, update: int) -> Metrics | None:
    """The figures of an update; None if this is not its line."""
    try:
        metrics = json.loads(line)
        numbers = all(misfit(value, float) == "" for value in metrics.values())
    except (ValueError, AttributeError, RecursionError):
        return None
    return metrics if numbers and metrics.get("update") == update and metrics.keys() >= _SECONDS else None


_SECONDS = {"seconds_acting", "seconds_training"}


def mean_over_games(metrics: Metrics) -> Metrics:
    """Metrics named `METRIC/GAME`, with the mean of each over the games; of one game, its metrics alone."""
    names = dict.fromkeys(name.partition("/")[0] for name in metrics)
    values = {name: [value for key, value in metrics.items() if key.startswith(f"{name}/")] for name in names}
    means = {name: sum(given) / len(given) for name, given in values.items()}
    return means | (metrics if len(metrics) > len(means) else {})
