"""Verification of rollout data sets: every action is played again from its seeds, and all that is stored must follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.scores import judged, score_steps
from msgrpo_hub.evaluation.verify import agree, reply_problems, verify
from msgrpo_hub.games import make_game
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.rollouts import (
    EPISODE_COLUMNS,
    STEP_COLUMNS,
    Rollout,
    origin_of,
    read_rollouts,
    read_shard,
    rows_of,
    shards,
)


@dataclass(kw_only=True)
class _Found:
    """What became of the episodes of one player in one game."""

    episodes: int = 0
    problems: list[str] = field(default_factory=list)


def verify_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks whatever a folder holds: the runs of `msgrpo eval` below it, and the episodes of a data set or of a training.

    Returns:
        Rows as `verify` gives them.

    Raises:
        UserError: there is neither.
    """
    own = verify_rollouts(folder)
    return [*own, *verify(folder)] if not own or any(folder.rglob(run_files.RESULTS)) else own


def verify_rollouts(folder: Path) -> list[dict[str, Any]]:
    """Checks the episodes of a rollout data set, or of a training's own log, which has no figures of the rules yet.

    Each reply must parse to its action, and the actions must lead from the seeds to the stored observations, rewards, end and
    success; prompts, legal and optimal actions, regrets and sums must follow. What only the player could tell, its replies and
    their log-probabilities, and what compares episodes, the advantages, cannot be checked.
    """
    found: dict[tuple[str, str], _Found] = {}
    for heads, steps in shards(folder):
        try:
            tables = read_shard(heads, steps)
            rollouts = read_rollouts(*tables)
        except (UserError, ValueError, TypeError) as error:
            found.setdefault((heads.name, "?"), _Found()).problems.append(str(error))
            continue
        rows = iter(tables[1].to_pylist())
        for head, rollout in zip(tables[0].to_pylist(), rollouts, strict=True):
            entry = found.setdefault((head["player"] or "training", head["game"]), _Found())
            entry.episodes += 1
            entry.problems += [
                f"{heads.name}, seed {head['seed']}, member {head['member']}: {problem}"
                for problem in _problems(head, [next(rows) for _ in rollout.episode.steps], rollout)
            ]
    return [
        {
            "player": player,
            "task": game,
            "folder": str(folder),
            "episodes": entry.episodes,
            "problems": entry.problems,
            "unchecked": [],
        }
        for (player, game), entry in found.items()
    ]


def _problems(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], rollout: Rollout) -> list[str]:
    """What does not agree with the rules in one episode, in words."""
    episode = rollout.episode
    try:
        game, origin = make_game(episode.game_id), origin_of(head)
        found = reply_problems(game, episode, score_steps(game, episode))
        expected_head, expected_steps = rows_of(rollout, origin, judged)
    except (UserError, ValueError, TypeError) as error:
        return [str(error)]
    blank = dict.fromkeys(EPISODE_COLUMNS), dict.fromkeys(STEP_COLUMNS)
    found += [f"{name} does not follow from its play" for name in _differing(blank[0] | expected_head, head)]
    for turn, (expected, stored) in enumerate(zip(expected_steps, steps, strict=True), start=1):
        names = _differing(blank[1] | expected, stored)
        found += [f"turn {turn}: {name} does not follow from its play" for name in names]
    return found


def _differing(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    return [name for name, value in expected.items() if not agree(value, stored[name])]
