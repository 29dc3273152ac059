"""The metrics of each update and their file, `metrics.jsonl`."""

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

from msgrpo_hub.episode import Episode, Group, known_sum
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import check
from msgrpo_hub.msgrpo import StepAdvantages

Metrics = dict[str, float]


def play_metrics(
    groups: Sequence[Group], returns: Sequence[Tensor], advantages: StepAdvantages, seconds: float, games: int = 1
) -> Metrics:
    """Metrics of the rollouts of an update: rewards, rates per step, entropy per token (nats), and speed.

    `returns` are the composite returns C of each group, (G,). In a run of several `games`, each has its own reward and success.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    replies = [step.completion for episode in episodes for step in episode.steps]
    tokens = sum(len(reply.token_ids) for reply in replies)
    # Servers give no entropies; −Σ log p is an unbiased estimate.
    entropy = sum(sum(reply.entropies) if reply.entropies else -sum(reply.log_probs) for reply in replies)
    near = known_sum([reply.near_draws for reply in replies])
    played = {"": episodes}
    if games > 1:
        played |= {f"/{name}": [e for e in episodes if e.game_id == name] for name in {e.game_id: None for e in episodes}}
    return {
        **{f"reward{game}": float(np.mean([episode.reward for episode in own])) for game, own in played.items()},
        **{f"success{game}": float(np.mean([episode.success for episode in own])) for game, own in played.items()},
        "reward_std": float(np.mean([np.std([episode.reward for episode in group.episodes]) for group in groups])),
        "composite_return": float(torch.cat([*returns]).mean()),
        "composite_return_std": float(np.mean([float(of_group.std(correction=0)) for of_group in returns])),
        "zero_variance_groups": float(sum(not any(bool(steps.any()) for steps in of_group) for of_group in advantages)),
        **reply_rates(episodes),
        "entropy": entropy / max(tokens, 1),
        **({} if near is None else {"near_draws": float(near)}),
        "distinct_prompt_ratio": len({reply.prompt_ids for reply in replies}) / len(replies),
        "episodes_per_second": len(episodes) / seconds,
        "tokens_per_second": tokens / seconds,
        "seconds_acting": seconds,
    }


def ratio_metrics(ratios: Sequence[Tensor], processes: int = 1) -> Metrics:
    """The 1 % and 99 % quantiles of p_θ / p_old over the tokens of an optimiser step; empty if there are none.

    In the first step on a batch only rounding makes the ratio differ from 1, so this shows how far 16 bits move the loss.
    """
    parts = [*ratios] if processes == 1 else [part for own in gather_object([[*ratios]]) for part in own]
    if not parts:
        return {}
    low, high = np.quantile(torch.cat(parts).double().numpy(), [0.01, 0.99])
    return {"ratio_q01": float(low), "ratio_q99": float(high)}


def reply_rates(episodes: Sequence[Episode]) -> Metrics:
    """Shares of steps whose reply was unparsed, truncated at the limit, or an illegal action."""
    steps = [step for episode in episodes for step in episode.steps]
    return {
        "unreadable_rate": sum(step.status == "unreadable" for step in steps) / len(steps),
        "truncated_rate": sum(step.status == "truncated_reply" for step in steps) / len(steps),
        "illegal_rate": sum(step.action is not None and not step.legal for step in steps) / len(steps),
    }


def memory_mb(device: str) -> float:
    """Peak memory in MB: of a GPU with its own memory, else of the process. `device` is the kind, such as `cpu`."""
    if device in ("cuda", "xpu"):
        return float(torch.get_device_module(device).max_memory_allocated() / 1e6)
    memory = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return float(memory.peak_wset / 1e6)
    import resource  # Windows has no such module

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def append_metrics(path: Path, metrics: Mapping[str, float]) -> None:
    """Appends one line and syncs it to disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(path: Path, updates: int | None = None) -> list[Metrics]:
    """The lines of a metrics file, one per update, without a torn last line.

    Raises `UserError` if a line is damaged, or one of the first `updates` is missing; None reads all.
    """
    written = path.read_bytes().splitlines()[:updates] if path.exists() else []
    lines: list[Metrics] = []
    for number, line in enumerate(written, start=1):
        try:
            metrics = json.loads(line)
            for name in ("seconds_acting", "seconds_training", *metrics):
                check(name, metrics[name], float)
            if metrics["update"] != number:
                break
        except (ValueError, TypeError, KeyError, RecursionError):
            break
        lines.append(metrics)
    torn = updates is None and len(lines) == len(written) - 1
    if len(lines) < (updates or len(written)) and not torn:
        raise UserError(
            f"{str(path)!r} has no readable line of update {len(lines) + 1}: expected one per update; put the file back, or "
            "train again in another folder"
        )
    return lines
