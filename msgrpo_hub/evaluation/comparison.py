"""Comparison of two stored players on the same episodes, and of two training methods over their training seeds."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import numpy as np

from msgrpo_hub.episode import EpisodeScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import TaskComparison, TaskValues, Verdict, compare_tasks, with_verdicts
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, Floats, Interval, welch
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.fields import checked
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range


@checked
def compare(first: Path | str | Sequence[Result], second: Path | str | Sequence[Result]) -> list[TaskComparison]:
    """Compares the second player with the first, the baseline, on every task and seed that both have played.

    Each is a folder with the runs of one player, or its results. Returns one comparison per task, of rewards and of success:
    second minus first, with Holm's correction over all of them. Raises `UserError` if a side has two runs of a task, the sides
    have no task in common, its rules differ, or a run is not complete.
    """
    a, b = _one_run_per_task(first), _one_run_per_task(second)
    pairs, bounds = {}, {}
    for task in _common_tasks(a, b):
        _check_comparable(a[task], b[task])
        pairs[task], bounds[task] = paired_values(a[task], b[task]), return_range(make_game(task))
    rows = []
    for row in compare_tasks(pairs, zlib.crc32("".join(sorted(pairs)).encode()), bounds):
        idle = [run.player for run in (a[row.task], b[row.task]) if not plays(run.summary)]
        rows.append(replace(row, not_playing=tuple(idle)))
    return rows


def paired_values(a: Result, b: Result) -> TaskValues:
    """Rewards and successes of two runs, the mean of the plays of each common board. Raises `UserError` if there are none."""
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


def _one_run_per_task(runs: Path | str | Sequence[Result]) -> dict[str, Result]:
    tasks: dict[str, Result] = {}
    for result in find_results(Path(runs)) if isinstance(runs, (str, Path)) else runs:
        if (other := tasks.setdefault(result.task, result)) is not result:
            first, second = (f"{run.folder} (suite {run.config['suite']})" for run in (other, result))
            raise UserError(
                f"two runs of {result.task}: {first} and {second}; expected one; give the folder of one player or one run; each "
                "suite needs an --output-dir of its own, and checkpoints of several seeds need --methods"
            )
    return tasks


def _common_tasks(a: Iterable[str], b: Collection[str]) -> list[str]:
    """The tasks that both sides have played, in the order of the first. Raises `UserError` if there are none."""
    if common := [task for task in a if task in b]:
        return common
    raise UserError(f"no task in common: {', '.join(a)} against {', '.join(b)}; expected both sides on one suite")


def _check_comparable(first: Result, *others: Result) -> None:
    """Raises `UserError` for a run that lacks episodes, or that was played by other rules than the first."""
    for other in others:
        for key in ("task_hash", "harness"):
            if first.config[key] != other.config[key]:
                versions = f"{key} {first.config[key]} and {other.config[key]}"
                raise UserError(f"the rules of {first.task} differ ({versions}): play both with the same version")
    for result in (first, *others):
        if not result.complete:
            raise UserError(
                f"{result.player} on {result.task} is not complete: without the {result.summary['failed']} episodes that failed "
                "the others are no fair sample: expected complete runs; the same `msgrpo eval` again plays what is missing"
            )


# ---- methods: the unit is a training run from one seed, not an episode

CHECKPOINT = ("base_commit", "adapter_commit", "weights", "server", "player")
"""Fields of an identity that another training seed changes."""
MAY_DIFFER = {*CHECKPOINT, "base", "adapter", "device", "engine", "batch_size", "torch", "transformers", "peft"}
"""Also the names of folders or repositories, and the settings that change results by rounding at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodComparison:
    """The second training method compared with the first on one task, over training seeds."""

    task: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    """Mean rewards of each method's checkpoints, one per training seed, ascending."""
    difference: float
    interval: Interval | None
    """95 % for the difference of the means (see `statistics.welch`)."""
    p: float
    p_adjusted: float = 1.0
    """Two-sided p of the permutation test on the means of the seeds, with Holm's correction over all tasks."""
    verdict: Verdict = "inconclusive"


def compare_methods(first: Path, second: Path) -> list[MethodComparison]:
    """Compares the second method with the first on every task that all their checkpoints have played.

    Each is a folder with the runs of the method's checkpoints, one per training seed. Raises `UserError` if a side has fewer
    than 3 checkpoints or its checkpoints differ in more than the training seed, or if the sides cannot be compared.
    """
    sides = [_checkpoints(folder) for folder in (first, second)]
    alone = []
    for task in _common_tasks(*sides):
        a, b = sides[0][task], sides[1][task]
        _check_comparable(*a, *b)
        boards = {episode.seed for episode in a[0].episodes}
        for other in [*a, *b]:
            if {episode.seed for episode in other.episodes} != boards:
                raise UserError(f"{task}: {other.folder} has other episodes than {a[0].folder}; expected one suite")
        alone.append(compare_seeds(task, *(np.array([run.summary["reward"]["mean"] for run in runs]) for runs in (a, b))))
    return with_verdicts(alone)


def _checkpoints(folder: Path) -> dict[str, list[Result]]:
    """Task → the runs of a method's checkpoints. Raises `UserError` if they are not checkpoints of one method."""
    tasks: dict[str, dict[str, Result]] = {}
    results, first = find_results(folder), dict[str, Any]()
    for result in results:
        adapter = "adapter_commit" in result.identity  # its base is a part of the method
        fixed = result.identity.keys() - (MAY_DIFFER - {"base_commit"} if adapter else MAY_DIFFER)
        shared = {"a trained adapter": adapter} | {name: result.identity[name] for name in sorted(fixed)}
        first = first or shared
        for name in first | shared:
            if (a := first.get(name, "none")) != (b := shared.get(name, "none")):
                given = f"{results[0].folder} and {result.folder} differ in {name} ({a} and {b}): expected checkpoints of one "
                raise UserError(f"{given}method, which differ only in the training seed")
        checkpoint = str([result.identity.get(field) for field in CHECKPOINT])
        if tasks.setdefault(result.task, {}).setdefault(checkpoint, result) is not result:
            raise UserError(f"two runs of one checkpoint on {result.task} in {str(folder)!r}: expected one run per training seed")
    played = {checkpoint: run.player for runs in tasks.values() for checkpoint, run in runs.items()}
    for task, runs in tasks.items():
        if missing := [player for checkpoint, player in played.items() if checkpoint not in runs]:
            raise UserError(f"{missing[0]} has not played {task}: expected one suite for all of {str(folder)!r}")
        if len(runs) < FEWEST_SEEDS:
            given = f"{len(runs)} checkpoints on {task} in {str(folder)!r}"
            raise UserError(f"{given}: expected one per training seed, at least {FEWEST_SEEDS}")
    return {task: list(runs.values()) for task, runs in tasks.items()}


def compare_seeds(task: str, a: Floats, b: Floats) -> MethodComparison:
    """Compares the means of two methods' training seeds, shapes [A] and [B], each of at least two.

    p is the share of all ways to deal the seeds to two methods whose means are as far apart (Fisher 1935, Pitman 1937); beyond
    20,000 ways, that many are sampled.
    """
    from scipy.stats import permutation_test

    how: dict[str, Any] = {"n_resamples": 20_000, "alternative": "greater", "vectorized": True, "rng": 0}
    found = permutation_test((a, b), lambda x, y, axis: np.round(np.abs(x.mean(axis) - y.mean(axis)), 9), **how)
    first, second = (tuple(sorted(map(float, values))) for values in (a, b))
    difference, p = float(b.mean() - a.mean()), float(found.pvalue)
    compared = MethodComparison(task=task, first=first, second=second, difference=difference, interval=welch(a, b), p=p)
    return with_verdicts([compared])[0]


def smallest_p(a: int, b: int) -> float:
    """The smallest p that so many training seeds can give.

    >>> smallest_p(3, 3), round(smallest_p(5, 5), 4)
    (0.1, 0.0079)
    """
    return (2 if a == b else 1) / math.comb(a + b, a)
