"""Comparison of two stored players, task by task, on the same episodes."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean as mean

from msgrpo_hub.episode import EpisodeScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import TaskComparison, TaskValues, compare_tasks
from msgrpo_hub.evaluation.results import Result, find_results, player_key, player_names
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.fields import checked
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range


@checked
def compare(first: Path | str | Sequence[Result], second: Path | str | Sequence[Result]) -> list[TaskComparison]:
    """Compares the second player with the first on every task and seed that both have played.

    Args:
        first: the baseline: a folder with the runs of one player, or its results.
        second: the other player, in the same form.

    Returns:
        One comparison per task, of rewards and of success: second minus first, with Holm's correction over all of them.

    Raises:
        UserError: a side has more than one run of a task, the sides have no task in common, or of a common one their rules differ
            or a run is not complete.
    """
    a, b = _by_task(first), _by_task(second)
    common = tasks_in_common(a, b)
    pairs, bounds = {}, {}
    for task in common:
        check_rules(a[task], b[task])
        check_complete(a[task], b[task])
        pairs[task], bounds[task] = paired_values(a[task], b[task]), return_range(make_game(task))
    compared = compare_tasks(pairs, zlib.crc32("".join(sorted(common)).encode()), bounds)
    return [replace(row, not_playing=_not_playing(a[row.task], b[row.task])) for row in compared]


def tasks_in_common(a: Iterable[str], b: Collection[str]) -> list[str]:
    """The tasks that both sides have played, in the order of the first. Raises `UserError` if there are none."""
    if common := [task for task in a if task in b]:
        return common
    raise UserError(f"no task in common: {', '.join(a)} against {', '.join(b)}; expected both sides on one suite")


def _not_playing(*runs: Result) -> tuple[str, ...]:
    """The names of the players that do not play."""
    return tuple(name for name, run in zip(_names(*runs), runs, strict=True) if not plays(run.summary))


def check_rules(a: Result, b: Result) -> None:
    """Raises `UserError` if two runs of a task were played by different rules."""
    for key in ("task_hash", "harness"):
        if a.config[key] != b.config[key]:
            versions = f"{key} {a.config[key]} and {b.config[key]}"
            raise UserError(f"the rules of {a.task} differ ({versions}): play both with the same version")


def check_complete(*results: Result) -> None:
    """Raises `UserError` for a run that lacks episodes."""
    for result in results:
        if not result.complete:
            raise UserError(
                f"{result.player} on {result.task} is not complete: without the {result.summary['failed']} episodes that failed "
                "the others are no fair sample: expected complete runs; the same `msgrpo eval` again plays what is missing"
            )


def _by_task(runs: Path | str | Sequence[Result]) -> dict[str, Result]:
    results = find_results(Path(runs)) if isinstance(runs, (str, Path)) else list(runs)
    tasks: dict[str, Result] = {}
    for result in results:
        if (other := tasks.setdefault(result.task, result)) is not result:
            named = zip((other, result), _names(other, result), strict=True)
            first, second = (f"{run.folder} ({name}, suite {run.config['suite']})" for run, name in named)
            same = player_key(other) == player_key(result)
            remedy = "each suite needs an --output-dir of its own" if same else "checkpoints of several seeds need --methods"
            raise UserError(
                f"two runs of {result.task}: {first} and {second}; expected one; give the folder of one player or one run; "
                f"{remedy}"
            )
    return tasks


def _names(*runs: Result) -> list[str]:
    """What tells runs apart."""
    names = player_names(runs)
    return [names[player_key(run)] for run in runs]


def paired_values(a: Result, b: Result) -> TaskValues:
    """Rewards and successes of two runs on the same boards, in the same order: one value per board, the mean of its plays.

    Only plays that both runs have are counted, so that both means rest on as many.

    Raises:
        UserError: the runs have no episode in common.
    """
    of_b = {(episode.seed, episode.member): score for episode, score in zip(b.episodes, b.scores, strict=True)}
    shared: dict[int, list[tuple[EpisodeScore, EpisodeScore]]] = {}
    for episode, score in zip(a.episodes, a.scores, strict=True):
        if other := of_b.get((episode.seed, episode.member)):
            shared.setdefault(episode.seed, []).append((score, other))
    if not shared:
        splits = f"{a.config['split']} and {b.config['split']}"
        raise UserError(f"{a.task}: no episode in common ({splits} episodes); expected two runs on one split")
    boards, sides = list(shared.values()), (0, 1)
    rewards = [[mean([plays[side].reward for plays in board]) for board in boards] for side in sides]
    successes = [[mean([float(plays[side].success) for plays in board]) for board in boards] for side in sides]
    return rewards[0], rewards[1], successes[0], successes[1]
