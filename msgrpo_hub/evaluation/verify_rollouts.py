"""Verification of rollout datasets: actions are replayed from their seeds, and all other columns must follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.scores import judged, score_steps
from msgrpo_hub.evaluation.verify import agree, reply_problems, verify
from msgrpo_hub.games import make_game
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, FIRST_ROLLOUTS, STEP_COLUMNS, Version
from msgrpo_hub.storage.shards import read_stored, shards
from msgrpo_hub.storage.tables import Rollout, origin_of, read_rollouts, rows_of


@dataclass(kw_only=True)
class _Report:
    """The result of checking the episodes of one player in one game."""

    episodes: int = 0
    problems: list[str] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)
    """Prompt formats that are not built in."""


def verify_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks everything in a folder: runs of `msgrpo eval` below it, and the episodes of a dataset or a training run.

    Returns:
        Rows as from `verify`.

    Raises:
        UserError: the folder has neither.
    """
    rollouts = verify_rollouts(folder)
    return [*rollouts, *verify(folder)] if not rollouts or any(folder.rglob(run_files.RESULTS)) else rollouts


def verify_rollouts(folder: Path) -> list[dict[str, Any]]:
    """Checks the episodes of a rollout dataset, or of a training run's log, which has no scores yet.

    Each reply must parse to its action, and the actions must lead from the seeds to the stored observations, rewards, end and
    success. Prompts, legal and optimal actions, regrets and sums must follow. Replies and their log-probabilities, which only
    the player knows, and advantages, which compare episodes, cannot be checked.
    """
    reports: dict[tuple[str, str], _Report] = {}
    for heads, steps in shards(folder):
        try:
            version, tables = _read(heads, steps)
            rollouts = read_rollouts(*tables)
        except (UserError, ValueError, TypeError) as error:
            reports.setdefault((heads.name, "?"), _Report()).problems.append(str(error))
            continue
        rows = iter(tables[1].to_pylist())
        for head, rollout in zip(tables[0].to_pylist(), rollouts, strict=True):
            report = reports.setdefault((head["player"] or "training", head["game"]), _Report())
            report.episodes += 1
            report.formats |= {rollout.prompt_format} - PROMPT_FORMATS.keys()
            report.problems += [
                f"{heads.name}, seed {head['seed']}, member {head['member']}: {problem}"
                for problem in _problems(head, [next(rows) for _ in rollout.episode.steps], rollout, version)
            ]
    return [
        {
            "player": player,
            "task": game,
            "folder": str(folder),
            "episodes": report.episodes,
            "problems": report.problems,
            "unchecked": [f"replies not checked: the format {name} is not built in" for name in sorted(report.formats)],
        }
        for (player, game), report in reports.items()
    ]


def _read(heads: Path, steps: Path) -> tuple[Version, tuple[pa.Table, pa.Table]]:
    """Both tables of a shard with the current columns, and their version. Raises `UserError` if the versions differ."""
    (version, of_heads), (other, of_steps) = read_stored(heads, "default"), read_stored(steps, "steps")
    if version is not other:
        raise UserError(f"its episodes are {version.name}, its steps {other.name}: expected one version")
    return version, (version.upgraded(of_heads, "default", {}), version.upgraded(of_steps, "steps", {}))


def _problems(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], rollout: Rollout, version: Version) -> list[str]:
    """What disagrees with the rules in one episode, as readable messages."""
    episode = rollout.episode
    if version is FIRST_ROLLOUTS and rollout.advantage is not None:  # its only credit was the whole episode's
        rollout = replace(rollout, step_advantages=(rollout.advantage,) * len(episode.steps))
    try:
        game, origin = make_game(episode.game_id), origin_of(head)
        messages = reply_problems(game, episode, score_steps(game, episode), PROMPT_FORMATS.get(rollout.prompt_format))
        expected_head, expected_steps = rows_of(rollout, origin, judged(episode) if origin else None)
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
