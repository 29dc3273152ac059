"""The end of a run: its final table, the episode of its replay, and the cause if it has learned nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from peft import PeftModel

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import BATCH, play_logged
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.statistics import mean_interval, wilson
from msgrpo_hub.evaluation.tables import FAULTS, aligned, faults_of, noted, with_interval
from msgrpo_hub.fields import check
from msgrpo_hub.games import Game, base_game, episode_seed
from msgrpo_hub.games.game import is_solvable, return_range
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.run_files import LOG, read_log
from msgrpo_hub.storage.tables import Origin, Rollout, tables
from msgrpo_hub.training.config import TrainConfig, best_teacher
from msgrpo_hub.training.metrics import Metrics, reply_rates

log = logging.getLogger(__name__)

_PATIENCE = 3
"""Updates without any advantage after which a run warns."""

# ---- the final table


@dataclass(frozen=True)
class Played:
    """A player's test episodes: sampled at the evaluation temperature, and greedy."""

    name: str
    sampled: list[Episode]
    greedy: list[Episode]


def play_test(
    game: Game, agent: LanguageModel, seeds: Sequence[int], temperature: float, folder: Path, show_progress: bool
) -> list[Played]:
    """Plays the same test episodes with each player of the table that knows the game. Finished ones stay in `folder`.

    These are scripted players, the base, the adapter, and the reference: optimal play, or else greedy play.
    """
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
    """The likely cause and the remedy if a run, or its rewards, taught nothing; otherwise empty.

    One line as `learned_nothing`, or as `rewards_taught_nothing` if a teacher taught the adapter.
    """
    rewarded = [line for line in metrics if "zero_variance_groups" in line]
    if rewarded and all(line["zero_variance_groups"] >= config.groups for line in rewarded):
        key = "rewards_taught_nothing" if len(rewarded) < len(metrics) else "learned_nothing"
        alike = f"in all {len(rewarded) * config.groups} groups every episode had the same return, so there were no advantages"
        return {key: f"{alike}; {_cause(config, rewarded)}"}
    return {}


def check_start(config: TrainConfig, metrics: Sequence[Metrics]) -> None:
    """Warns once after three updates in a row without any advantage, unless every episode succeeds.

    Raises:
        UserError: the first three updates with rewards had no parsed reply, and more updates follow. A resumed run continues.
    """
    rewarded, index = [line for line in metrics if "zero_variance_groups" in line], len(metrics)
    idle = [line["zero_variance_groups"] >= config.groups for line in rewarded]
    last = rewarded[-_PATIENCE:]
    if len(last) < _PATIENCE or not all(idle[-_PATIENCE:]) or all(line["success"] == 1 for line in last):
        return
    unparsed = all(line["truncated_rate"] + line["unreadable_rate"] == 1 for line in last)
    if len(rewarded) == _PATIENCE and index < config.updates and unparsed:
        raise UserError(
            f"stopped after update {index}, which is saved, because rewards can teach nothing: {_cause(config, last)}; name "
            "another --output-dir, or add --resume to continue anyway"
        )
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
