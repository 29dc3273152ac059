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
from msgrpo_hub.evaluation.paired import SIZE, TaskComparison, TaskValues, Verdict, compare_tasks, holm, verdict
from msgrpo_hub.evaluation.results import Result, find_results, player_key, player_names
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, NO_INTERVAL, Floats, Interval, welch
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.evaluation.tables import aligned, p_value
from msgrpo_hub.fields import checked
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range


@checked
def compare(first: Path | str | Sequence[Result], second: Path | str | Sequence[Result]) -> list[TaskComparison]:
    """Compares the second player with the first, the baseline, on every task and seed that both have played.

    Each is a folder with the runs of one player, or its results.

    Returns:
        One comparison per task, of rewards and of success: second minus first, with Holm's correction over all of them.

    Raises:
        UserError: a side has more than one run of a task; the sides have no task in common; the rules of a common task differ;
            or a run is not complete.
    """
    a, b = _one_run_per_task(first), _one_run_per_task(second)
    pairs, bounds = {}, {}
    for task in _common_tasks(a, b):
        _check_comparable(a[task], b[task])
        pairs[task], bounds[task] = paired_values(a[task], b[task]), return_range(make_game(task))
    rows = []
    for row in compare_tasks(pairs, zlib.crc32("".join(sorted(pairs)).encode()), bounds):
        runs = (a[row.task], b[row.task])
        names = player_names(runs)
        rows.append(replace(row, not_playing=tuple(names[player_key(run)] for run in runs if not plays(run.summary))))
    return rows


def paired_values(a: Result, b: Result) -> TaskValues:
    """Rewards and successes of two runs on the same boards, in the same order: one value per board, the mean of its plays.

    Only plays that both runs have count.

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


def _one_run_per_task(runs: Path | str | Sequence[Result]) -> dict[str, Result]:
    tasks: dict[str, Result] = {}
    for result in find_results(Path(runs)) if isinstance(runs, (str, Path)) else runs:
        if (other := tasks.setdefault(result.task, result)) is not result:
            names, both = player_names([other, result]), (other, result)
            first, second = (f"{run.folder} ({names[player_key(run)]}, suite {run.config['suite']})" for run in both)
            same = player_key(other) == player_key(result)
            remedy = "each suite needs an --output-dir of its own" if same else "checkpoints of several seeds need --methods"
            raise UserError(
                f"two runs of {result.task}: {first} and {second}; expected one; give the folder of one player or one run; "
                f"{remedy}"
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
    p_adjusted: float
    """Two-sided p of the permutation test on the means of the seeds, with Holm's correction over all tasks."""
    verdict: Verdict


def compare_methods(first: Path, second: Path) -> list[MethodComparison]:
    """Compares the second method with the first on every task that all their checkpoints have played.

    Each is a folder with the runs of the method's checkpoints, one per training seed.

    Raises:
        UserError: a side has fewer than 3 checkpoints, two runs of one checkpoint, or checkpoints that differ in more than the
            training seed or have not all played the same tasks; the sides have no task in common; or their rules or episodes
            differ.
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
    adjusted = holm([row.p for row in alone])
    return [replace(row, p_adjusted=p, verdict=verdict(row.difference, p)) for row, p in zip(alone, adjusted, strict=True)]


def _checkpoints(folder: Path) -> dict[str, list[Result]]:
    """Task → the runs of a method's checkpoints. Raises `UserError` if they are not checkpoints of one method."""
    tasks: dict[str, dict[str, Result]] = {}
    results, first = find_results(folder), dict[str, Any]()
    for result in results:
        identity = result.identity
        adapter = "adapter_commit" in identity  # its base is a part of the method
        fixed = identity.keys() - (MAY_DIFFER - {"base_commit"} if adapter else MAY_DIFFER)
        shared = {"a trained adapter": adapter} | {name: identity[name] for name in sorted(fixed)}
        first = first or shared
        for name in first | shared:
            if (a := first.get(name, "none")) != (b := shared.get(name, "none")):
                raise UserError(
                    f"{results[0].folder} and {result.folder} differ in {name} ({a} and {b}): expected checkpoints of one "
                    "method, which differ only in the training seed"
                )
        checkpoint = str([result.config["identity"].get(field) for field in CHECKPOINT])
        if tasks.setdefault(result.task, {}).setdefault(checkpoint, result) is not result:
            raise UserError(f"two runs of one checkpoint on {result.task} in {str(folder)!r}: expected one run per training seed")
    checkpoints = {checkpoint: run for runs in tasks.values() for checkpoint, run in runs.items()}
    for task, runs in tasks.items():
        for checkpoint in checkpoints.keys() - runs.keys():
            raise UserError(
                f"{checkpoints[checkpoint].player} has not played {task}: expected one suite for all of {str(folder)!r}"
            )
        if len(runs) < FEWEST_SEEDS:
            raise UserError(
                f"{len(runs)} checkpoints on {task} in {str(folder)!r}: expected one per training seed, at least {FEWEST_SEEDS}"
            )
    return {task: list(runs.values()) for task, runs in tasks.items()}


def compare_seeds(task: str, a: Floats, b: Floats) -> MethodComparison:
    """Compares the means of two methods' training seeds, shapes [A] and [B], each of at least two.

    p is the share of all ways to deal the seeds to two methods whose means are as far apart (Fisher 1935, Pitman 1937); beyond
    20,000 ways, that many are sampled.
    """
    from scipy.stats import permutation_test

    def apart(x: Floats, y: Floats, axis: int) -> Floats:
        return np.asarray(np.round(np.abs(x.mean(axis) - y.mean(axis)), 9))

    found = permutation_test((a, b), apart, n_resamples=20_000, alternative="greater", vectorized=True, rng=0)
    p, difference = float(found.pvalue), float(b.mean() - a.mean())
    first, second = (tuple(sorted(map(float, values))) for values in (a, b))
    about: dict[str, Any] = {"interval": welch(a, b), "p": p, "p_adjusted": p, "verdict": verdict(difference, p)}
    return MethodComparison(task=task, first=first, second=second, difference=difference, **about)


def smallest_p(a: int, b: int) -> float:
    """The smallest p that so many training seeds can give.

    >>> smallest_p(3, 3), round(smallest_p(5, 5), 4)
    (0.1, 0.0079)
    """
    return (2 if a == b else 1) / math.comb(a + b, a)


def methods_table(rows: Sequence[MethodComparison]) -> str:
    """One line per task: the mean of each training seed, the difference and the verdict; then the smallest possible p."""
    lines = [["task", "first", "second", "difference", "p (Holm)", "verdict"]]
    for row in rows:
        seeds = [" ".join(f"{mean:.3f}" for mean in means) for means in (row.first, row.second)]
        difference = f"{row.difference:+.3f} {row.interval or NO_INTERVAL}"
        lines.append([row.task, *seeds, difference, p_value(row.p_adjusted), row.verdict])
    least = max(smallest_p(len(row.first), len(row.second)) * len(rows) for row in rows)
    note = "" if least < SIZE else "; so few can give no verdict: train more, or compare fewer tasks"
    title = "second minus first; each number is the mean reward of one training seed"
    return f"{title}\n{aligned(lines)}\nsmallest p that so many seeds can give, after Holm: {min(least, 1.0):.4f}{note}"
