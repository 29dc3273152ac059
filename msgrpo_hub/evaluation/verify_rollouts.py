"""Verification of rollout datasets: actions are replayed from their seeds, and all other columns must follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import run_keys
from msgrpo_hub.evaluation.token_check import unchecked_tokens
from msgrpo_hub.evaluation.verify import agree, legal_actions, reply_problems, unchecked_replies, unchecked_rules, verify
from msgrpo_hub.evaluation.verify_updates import unchecked_updates, update_problems
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, STEP_COLUMNS, UpdateRules, rules_of
from msgrpo_hub.storage.shards import missing_updates, read_shard, shards
from msgrpo_hub.storage.tables import Origin, Rollout, origin_of, read_rollouts, rows_of


@dataclass(kw_only=True)
class _Report:
    """The result of checking the episodes of one player in one game."""

    episodes: int = 0
    problems: list[str] = field(default_factory=list)
    unchecked: dict[str, None] = field(default_factory=dict)
    """What could not be checked, each once and in order."""


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """The episodes of a file, as stored and as read."""

    name: str
    rules: UpdateRules | None
    """How the run computed advantages and selected episodes; None if the file does not say, and in an evaluation."""
    heads: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    rollouts: list[Rollout]

    def origin(self, head: Mapping[str, Any]) -> Origin | None:
        """Where an episode comes from; in the log of a run, as far as the rules say."""
        if head["run"] is not None or self.rules is None:
            return origin_of(head)
        own = {name: getattr(self.rules, name) for name in ("base", "base_revision", "max_new_tokens")}
        return Origin(split="train", player="training", run="", **own)


def verify_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks everything in a folder: runs of `msgrpo eval` below it, and the episodes of a dataset or a training run.

    Returns:
        Rows as from `verify`.

    Raises:
        UserError: the folder has neither.
    """
    rollouts = verify_rollouts(folder)
    if rollouts and not any(folder.rglob(run_files.RESULTS)):
        return rollouts
    if not any(any(folder.rglob(name)) for name in (run_files.RESULTS, run_files.EPISODES)):
        raise UserError(
            f"no episodes under {str(folder)!r}: expected a folder that `msgrpo eval --output-dir` has filled, or "
            "`msgrpo train` with --save-rollouts"
        )
    return [*rollouts, *verify(folder)]


def verify_rollouts(folder: Path) -> list[dict[str, Any]]:
    """Checks the episodes of a rollout dataset, or of a training run's log, which has no scores yet.

    Each reply must parse to its action, and the actions must lead from the seeds to the stored observations, rewards, end and
    success. Prompts, legal and optimal actions, regrets and sums must follow, and advantages and selection from the rules that
    the run stored. Replies and their log-probabilities, which only the player knows, cannot be checked.
    """
    reports: dict[tuple[str, str], _Report] = {}
    for heads, steps in shards(folder):
        try:
            shard = _read(heads, steps)
            _add(shard, reports)
        except (UserError, ValueError, TypeError) as error:
            reports.setdefault((heads.name, "?"), _Report()).problems.append(str(error))
    if missing := missing_updates(folder):
        reports.setdefault(("training", "?"), _Report()).problems.append(f"the episodes of update {missing[0]} are missing")
    return [
        {
            "player": player,
            "task": game,
            "folder": str(folder),
            "episodes": report.episodes,
            "problems": report.problems,
            "unchecked": list(report.unchecked),
        }
        for (player, game), report in reports.items()
    ]


def _add(shard: _Shard, reports: dict[tuple[str, str], _Report]) -> None:
    """Adds what is found in a shard: in its episodes one by one and, if these are what was played, between them."""
    rows, found = iter(shard.steps), False
    for head, rollout in zip(shard.heads, shard.rollouts, strict=True):
        report = reports.setdefault((head["player"] or "training", head["game"]), _Report())
        report.episodes += 1
        report.unchecked |= dict.fromkeys(_unchecked(shard, head, rollout))
        problems = _problems(head, [next(rows) for _ in rollout.episode.steps], rollout, shard)
        report.problems += [f"{shard.name}, seed {head['seed']}, member {head['member']}: {problem}" for problem in problems]
        found = found or bool(problems)
    if shard.heads and not found:
        report.problems += [f"{shard.name}, {problem}" for problem in _together_problems(shard)]


def checked_rollouts(heads: Path, steps: Path) -> list[Rollout]:
    """The episodes of a shard that is not trusted: each replays, its replies parse, and none of its group is missing.

    Raises:
        UserError: the file cannot be read, or an episode is not what was played; the message names the first problem.
    """
    try:
        shard, problems = _read(heads, steps), []
        for head, rollout in zip(shard.heads, shard.rollouts, strict=True):
            found = _reply_problems(shard, head, rollout)
            problems += [f"seed {head['seed']}, member {head['member']}: {problem}" for problem in found]
        problems = problems or _together_problems(shard)
    except UserError:
        raise
    except (ValueError, TypeError) as error:
        problems = [str(error)]
    if problems:
        raise UserError(f"{str(heads)!r} is refused ({problems[0]}): expected what was played; `msgrpo verify` shows details")
    return shard.rollouts


def _reply_problems(shard: _Shard, head: Mapping[str, Any], rollout: Rollout) -> list[str]:
    built_in, legal = PROMPT_FORMATS.get(rollout.prompt_format), legal_actions(rollout.episode)
    return reply_problems(rollout.episode, legal, built_in, shard.origin(head))


def _read(heads: Path, steps: Path) -> _Shard:
    """A shard. Raises `UserError` for files that are no shard."""
    of_heads, of_steps = read_shard(heads, steps)
    rollouts, rules = read_rollouts(of_heads, of_steps), rules_of(of_heads.schema)
    return _Shard(name=heads.name, rules=rules, heads=of_heads.to_pylist(), steps=of_steps.to_pylist(), rollouts=rollouts)


def _together_problems(shard: _Shard) -> list[str]:
    """What is wrong between episodes: missing ones, and advantages and selections that do not follow from their group."""
    trained = [rollout for rollout in shard.rollouts if rollout.update is not None]
    played = [rollout for rollout in shard.rollouts if rollout.update is None]
    splits = {head["split"] for head in shard.heads if head["update"] is None}
    messages = update_problems(trained, shard.rules) if shard.rules and trained else []
    if any((rollout.advantage, rollout.selected) != (None, None) for rollout in played):
        messages.append("an episode without an update has an advantage or a selection")
    if played and not _are_first(played, *splits):
        messages.append("its episodes are not the first of their split, each once and in order")
    return messages


def _are_first(rollouts: Sequence[Rollout], split: str | None, *others: str | None) -> bool:
    """Whether the episodes of an evaluation are the first of one split."""
    if others or split not in ("validation", "test"):
        return False
    keys = [(rollout.index, rollout.episode.seed, rollout.episode.member) for rollout in rollouts]
    repeats = max(member for _, _, member in keys) + 1
    config = {"task": rollouts[0].episode.game_id, "split": split, "episodes": len(keys) // repeats, "repeats": repeats}
    return keys == [(i // repeats, *key) for i, key in enumerate(run_keys(config))]


def _unchecked(shard: _Shard, head: Mapping[str, Any], rollout: Rollout) -> list[str]:
    """What cannot be checked of an episode, as readable messages."""
    return [
        *unchecked_rules(rollout.episode.game_id),
        *unchecked_replies(rollout.prompt_format),
        *(unchecked_updates(shard.rules) if rollout.update is not None else []),
        *unchecked_tokens(shard.origin(head), rollout.episode),
    ]


def _problems(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], rollout: Rollout, shard: _Shard) -> list[str]:
    """What disagrees with the rules in one episode, as readable messages."""
    origin = origin_of(head)
    try:
        messages = _reply_problems(shard, head, rollout)
        expected_head, expected_steps = rows_of(rollout, origin, judged(rollout.episode) if origin else None)
    except (UserError, ValueError, TypeError) as error:
        return [str(error)]
    blank = dict.fromkeys(EPISODE_COLUMNS), dict.fromkeys(STEP_COLUMNS)
    messages += [f"{name} does not follow from the actions" for name in _differing(blank[0] | expected_head, head)]
    for turn, (expected, stored) in enumerate(zip(expected_steps, steps, strict=True), start=1):
        names = _differing(blank[1] | expected, stored)
        messages += [f"turn {turn}: {name} does not follow from the actions" for name in names]
    return messages


def _differing(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    return [name for name, value in expected.items() if not agree(value, stored[name])]
