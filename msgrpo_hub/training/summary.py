"""What a run measures: the metrics of each update (`metrics.jsonl`), its final table, and the cause if it has learned nothing."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from accelerate.utils import gather_object
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Episode, Group, known_sum
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import BATCH, play_logged
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.statistics import mean_interval, wilson
from msgrpo_hub.evaluation.tables import FAULTS, aligned, faults_of, noted, with_interval
from msgrpo_hub.fields import check
from msgrpo_hub.games import Game, base_game, episode_seed
from msgrpo_hub.games.game import is_solvable, return_range
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import StepAdvantages
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.run_files import LOG, read_log
from msgrpo_hub.storage.tables import Origin, Rollout, tables
from msgrpo_hub.training.config import TrainConfig, best_teacher

log = logging.getLogger(__name__)

Metrics = dict[str, float]

_PATIENCE = 3
"""Updates without any advantage after which a run warns."""

# ---- metrics


def play_metrics(
    groups: Sequence[Group], returns: Sequence[Tensor], advantages: StepAdvantages, seconds: float, games: int = 1
) -> Metrics:
    """Metrics of an update's rollouts, also by game if there are several; `returns` are C, (G,) each."""
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
    """The 1 % and 99 % quantiles of p_θ / p_old over the tokens of an optimiser step. At first only rounding moves them."""
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
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def append_metrics(path: Path, metrics: Mapping[str, float]) -> None:
    """Appends one line and syncs it to disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(path: Path, updates: int | None = None) -> list[Metrics]:
    """The lines of a metrics file without a torn last one. Raises `UserError` if one of the first `updates` is damaged."""
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
        remedy = "expected one per update; put the file back, or train again in another folder"
        raise UserError(f"{str(path)!r} has no readable line of update {len(lines) + 1}: {remedy}")
    return lines


# ---- the final table


@dataclass(frozen=True)
class Played:
    """A player's test episodes: sampled at the evaluation temperature, and greedy."""

    name: str
    sampled: list[Episode]
    greedy: list[Episode]


def size_of_test(config: TrainConfig, metrics: Sequence[Metrics], games: int) -> int:
    """The test episodes per game; `auto` is what fits into a quarter of the time so far, by the metrics, so also on resume."""
    if config.test_episodes != "auto":
        return config.test_episodes
    spent = sum(line.get(f"seconds_{part}", 0.0) for line in metrics for part in ("acting", "training", "validating"))
    speeds = [line["seconds_validating"] / config.eval_episodes / games for line in metrics if "seconds_validating" in line]
    speeds = speeds or [1 / line["episodes_per_second"] for line in metrics if "episodes_per_second" in line]
    of_each = 4 * games * float(np.mean(speeds)) if speeds else spent / 200  # base and adapter, sampled and greedy
    episodes = int(min(max(spent / 4 / max(of_each, 1e-9) // 10 * 10, 20), 200))
    minutes = f"about {episodes * of_each / 60:.1f} min; --test-episodes N plays another number"
    log.info("final test on %d episodes of each game, %s", episodes, minutes)
    return episodes


def play_test(
    game: Game, agent: LanguageModel, seeds: Sequence[int], temperature: float, folder: Path, show_progress: bool
) -> list[Played]:
    """Plays the test episodes with every player of the table that knows the game. Finished episodes stay in `folder`."""
    keys = [(seed, 0) for seed in seeds]
    played, references = [], ["random-safe", "base", "adapter", "greedy"]
    if is_solvable(base_game(game)):
        references = ["base", "adapter", "optimal"]
    for name in ("silent", "random", *references):
        if name not in ("base", "adapter"):
            if can_play(name, game):
                episodes = play_episodes(game, ScriptedPolicy(SCRIPTED[name]), keys, prompt_format=agent.prompt_format)
                played.append(Played(name, episodes, episodes))
            continue
        ways = []
        for way in (temperature, 0.0):
            place, title = folder / game.id.replace(":", "-") / f"{name}-{way}", f"{name} at temperature {way:g} · {game.id}"
            place.mkdir(parents=True, exist_ok=True)
            with cast(PeftModel, agent.model).disable_adapter() if name == "base" else nullcontext():
                policy, how = replace(agent, temperature=way), (agent.prompt_format, True, BATCH, show_progress)
                play_logged(game, policy, keys, place, title, *how)
            logged, _ = read_log(place / LOG, game.id)
            ways.append([logged[index] for index in range(len(keys))])
        played.append(Played(name, *ways))
    return played


def scores(game: Game, played: Played) -> dict[str, Any]:
    """A player's row: success and reward, sampled and greedy, each with its 95 % interval, and the rates of its replies."""
    seed = episode_seed(game.id, "test", 0)
    row: dict[str, Any] = {"episodes": len(played.sampled)}
    for suffix, episodes in (("", played.sampled), ("_greedy", played.greedy)):
        successes = sum(episode.success for episode in episodes)
        rewards = [episode.reward for episode in episodes]
        share, interval = wilson(successes, len(episodes)), mean_interval(rewards, seed, bounds=return_range(game))
        row[f"success{suffix}"] = successes / len(episodes)
        row[f"success{suffix}_interval"] = share and [share.low, share.high]
        row[f"reward{suffix}"] = float(np.mean(rewards))
        row[f"reward{suffix}_interval"] = interval and [interval.low, interval.high]
        row[f"reward{suffix}_rule"] = interval and interval.rule
    return row | reply_rates(played.sampled)


def episode_table(played: Sequence[Played], origin: Origin, prompt_format: str) -> pa.Table:
    """Every test episode of every player, one row each; a scripted player's once, without a temperature."""
    parts = []
    for player in played:
        scripted = player.sampled is player.greedy
        own = Origin(split="test", player=player.name, run=origin.run) if scripted else replace(origin, player=player.name)
        ways = [(None, player.sampled)] if scripted else [(origin.temperature, player.sampled), (0.0, player.greedy)]
        for temperature, episodes in ways:
            rollouts = [Rollout(episode=e, index=index, prompt_format=prompt_format) for index, e in enumerate(episodes)]
            both = tables(rollouts, replace(own, temperature=temperature), [judged(episode) for episode in episodes])
            parts.append(both["default"])
    return pa.concat_tables(parts)


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a finished run. Raises `UserError` if it is damaged."""
    remedy = "the summary of a finished run; delete it, and finish the run again with --resume"
    summary = read_json(path, remedy)
    try:
        for name in ("seconds_acting", "seconds_training", "seconds"):
            check(name, summary[name], float)
        check("config", summary["config"], dict)
        if "players" in summary:
            table(summary)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{str(path)!r} is damaged ({error}): expected {remedy}") from error
    return summary


def table(summary: Mapping[str, Any]) -> str:
    """A summary as a text table, with the cells of `msgrpo eval`. Sampled replies alone count for the faults."""
    boards = f" on {summary['boards']} boards" if "boards" in summary else ""
    rows = [["player", "reward", "greedy", "success", "greedy", FAULTS]]
    for name in summary["players"]:
        row, cells = summary[name], [name]
        for figure in ("reward", "success"):
            low, high = row[f"{figure}_interval"] or (None, None)
            sampled = {"mean": row[figure], "low": low, "high": high, "rule": row.get(f"{figure}_rule")}
            cells += [with_interval(sampled), f"{row[f'{figure}_greedy']:z.3f}"]
        rows.append([*cells, faults_of(row)])
    title = f"{summary['game']}, {summary['episodes']} test episodes{boards}, 95 % intervals\n"
    return "\n".join([noted(title + aligned(rows)), *summary.get("left_out", [])])


# ---- runs that learn nothing


def outcome(config: TrainConfig, metrics: Sequence[Metrics]) -> dict[str, str]:
    """The likely cause and the remedy as `learned_nothing`, or after SFT as `rewards_taught_nothing`; otherwise empty."""
    rewarded = [line for line in metrics if "zero_variance_groups" in line]
    if rewarded and all(line["zero_variance_groups"] >= config.groups for line in rewarded):
        key = "rewards_taught_nothing" if len(rewarded) < len(metrics) else "learned_nothing"
        alike = f"in all {len(rewarded) * config.groups} groups every episode had the same return, so there were no advantages"
        return {key: f"{alike}; {_cause(config, rewarded)}"}
    return {}


def check_start(config: TrainConfig, metrics: Sequence[Metrics]) -> None:
    """Warns of three updates without any advantage. Raises `UserError` if the first three with rewards had no parsed reply."""
    rewarded, index = [line for line in metrics if "zero_variance_groups" in line], len(metrics)
    idle = [line["zero_variance_groups"] >= config.groups for line in rewarded]
    last = rewarded[-_PATIENCE:]
    if len(last) < _PATIENCE or not all(idle[-_PATIENCE:]) or all(line["success"] == 1 for line in last):
        return
    unparsed = all(line["truncated_rate"] + line["unreadable_rate"] == 1 for line in last)
    if len(rewarded) == _PATIENCE and index < config.updates and unparsed:
        remedy = f"{_cause(config, last)}; name another --output-dir, or add --resume to continue anyway"
        raise UserError(f"stopped after update {index}, which is saved, because rewards can teach nothing: {remedy}")
    if not any(idle[-_PATIENCE - 1 : -_PATIENCE]):
        log.warning("updates %d to %d changed nothing: %s", index - _PATIENCE + 1, index, _cause(config, last))


def _cause(config: TrainConfig, metrics: Sequence[Metrics]) -> str:
    """The likely cause of equal returns, with remedies, the most promising first."""
    names = ("truncated_rate", "unreadable_rate", "success")
    truncated, unparsed, success = (float(np.mean([line[name] for line in metrics])) for name in names)
    if truncated + unparsed < 0.5:
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
