"""Comparison of two training methods: the unit is a training run from one seed, not an episode.

A method is judged by several runs that differ in the training seed alone. Their checkpoints play the same episodes. The mean
reward of a checkpoint is one value, and more episodes cannot replace seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import check_complete, check_rules, tasks_in_common
from msgrpo_hub.evaluation.over_seeds import FEWEST_SEEDS, student_t
from msgrpo_hub.evaluation.paired import Floats, Verdict, holm, verdict
from msgrpo_hub.evaluation.power import SIZE
from msgrpo_hub.evaluation.results import Result, find_results, identity_of
from msgrpo_hub.evaluation.statistics import LEVEL, RESAMPLES, Interval
from msgrpo_hub.evaluation.tables import aligned

MOST_DEALS = 20_000
"""The largest number of ways to deal the seeds to two methods that is enumerated; beyond it, 9,999 are sampled."""


CHECKPOINT = ("base_commit", "adapter_commit", "weights", "server", "player")
"""Fields of an identity that another training seed changes."""
NAMES = ("base", "adapter")
"""Fields that may change with it: the names of folders or repositories."""
MACHINE = ("device", "engine", "batch_size", "torch", "transformers", "peft")
"""Fields that change results by rounding at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodComparison:
    """Method b compared with method a on one task, over training seeds."""

    task: str
    first: tuple[float, ...]
    """Mean rewards of a's checkpoints, one per training seed, ascending."""
    second: tuple[float, ...]
    """The same of b."""
    interval: Interval | None
    """95 % for the difference of the means of the seeds (Welch 1947); None if the seeds of neither method differ."""
    p: float
    """Two-sided p of the permutation test on the means of the seeds."""
    p_adjusted: float
    """p with Holm's correction over all tasks."""

    @property
    def difference(self) -> float:
        """Mean of b's seeds minus mean of a's."""
        return sum(self.second) / len(self.second) - sum(self.first) / len(self.first)

    @property
    def verdict(self) -> Verdict:
        """Whether b is the better method."""
        return verdict(self.difference, self.p_adjusted)


def compare_methods(first: Path, second: Path) -> list[MethodComparison]:
    """Compares two methods on every task that all their checkpoints have played.

    Args:
        first: folder with the runs of the baseline's checkpoints, one per training seed.
        second: the same of the other method.

    Raises:
        UserError: a side has fewer than 3 checkpoints, or such as differ in more than the training seed or have not all played
            the same tasks; or the sides have no task in common, or their rules or episodes differ.
    """
    a, b = _by_task(first), _by_task(second)
    alone = [_compared(task, a[task], b[task]) for task in tasks_in_common(a, b)]
    adjusted = holm([found.p for found in alone])
    return [replace(found, p_adjusted=p) for found, p in zip(alone, adjusted, strict=True)]


def _compared(task: str, a: Sequence[Result], b: Sequence[Result]) -> MethodComparison:
    check_complete(*a, *b)
    first, *others = [*a, *b]
    for other in others:
        check_rules(first, other)
        if {episode.seed for episode in other.episodes} != {episode.seed for episode in first.episodes}:
            raise UserError(f"{task}: {other.folder} has other episodes than {first.folder}; expected one suite")
    for runs in (a, b):
        if len(runs) < FEWEST_SEEDS:
            raise UserError(
                f"{len(runs)} checkpoints of one method on {task}, such as {runs[0].folder}: expected one per training seed, at "
                f"least {FEWEST_SEEDS}"
            )
    return compare_seeds(task, *(np.array([_mean_reward(run) for run in runs]) for runs in (a, b)))


def _by_task(folder: Path) -> dict[str, list[Result]]:
    """The results of a method, one per checkpoint and task. Raises `UserError` if they are not checkpoints of one method."""
    tasks: dict[str, dict[str, Result]] = {}
    results = find_results(folder)
    for result in results:
        check_same_method(results[0], result)
        if tasks.setdefault(result.task, {}).setdefault(_checkpoint(result), result) is not result:
            raise UserError(f"two runs of one checkpoint on {result.task} in {str(folder)!r}: expected one run per training seed")
    all_of_them = {checkpoint: result for of_task in tasks.values() for checkpoint, result in of_task.items()}
    for task, of_task in tasks.items():
        for checkpoint in all_of_them.keys() - of_task.keys():
            raise UserError(
                f"{all_of_them[checkpoint].player} has not played {task}: expected one suite for all of {str(folder)!r}"
            )
    return {task: list(of_task.values()) for task, of_task in tasks.items()}


def _checkpoint(result: Result) -> str:
    """What another training seed changes: commits and hashes of weights; of players without any, what they are called."""
    identity = result.config["identity"]
    return str([identity.get(field) for field in CHECKPOINT])


def _method(identity: Mapping[str, Any]) -> dict[str, str]:
    """What all checkpoints of a method have in common. The base of an adapter is among it; a base may itself be a checkpoint."""
    has_adapter = "adapter_commit" in identity
    changes = {*CHECKPOINT, *NAMES, *MACHINE} - ({"base_commit"} if has_adapter else set())
    common = {field: str(value) for field, value in identity.items() if field not in changes}
    return {**common, "a trained adapter": str(has_adapter)}


def check_same_method(first: Result, other: Result) -> None:
    """Raises `UserError` unless two results are of one method: adapters of one base or none, and sampled the same way."""
    identities = [_method(identity_of(result)) for result in (first, other)]
    for field in sorted(identities[0].keys() | identities[1].keys()):
        one, two = (identity.get(field, "none") for identity in identities)
        if one != two:
            raise UserError(
                f"{first.folder} and {other.folder} differ in {field} ({one} and {two}):"
                " expected checkpoints of one method, which differ in the training seed alone"
            )


def _mean_reward(result: Result) -> float:
    return float(np.mean([score.reward for score in result.scores]))


def compare_seeds(task: str, a: Floats, b: Floats) -> MethodComparison:
    """Compares the means of two methods' training seeds, shapes [A] and [B], each of at least two."""
    p = permutation_p(a, b)
    first, second = (tuple(sorted(map(float, values))) for values in (a, b))
    return MethodComparison(task=task, first=first, second=second, interval=welch(a, b), p=p, p_adjusted=p)


def permutation_p(a: Floats, b: Floats) -> float:
    """How often dealing all seeds at random to two methods gives means as far apart (Fisher 1935, Pitman 1937).

    >>> permutation_p(np.array([0.0, 0.1, 0.2]), np.array([0.7, 0.8, 0.9]))  # 2 of 20 deals
    0.1
    """
    values, n = np.concatenate([a, b]), len(a)
    total, far = values.sum(), abs(a.mean() - b.mean())

    def as_far(dealt: Floats) -> Floats:
        apart = np.abs(dealt / n - (total - dealt) / (len(values) - n))
        return np.asarray(apart >= far - 1e-9)

    if math.comb(len(values), n) <= MOST_DEALS:
        deals = np.array(list(combinations(range(len(values)), n)))
        return float(as_far(values[deals].sum(axis=1)).mean())
    rng = np.random.default_rng(0)
    dealt = rng.permuted(np.tile(values, (RESAMPLES, 1)), axis=1)[:, :n].sum(axis=1)
    return float((as_far(dealt).sum() + 1) / (RESAMPLES + 1))


def smallest_p(a: int, b: int) -> float:
    """The smallest p that so many training seeds can give.

    >>> smallest_p(3, 3), round(smallest_p(5, 5), 4)
    (0.1, 0.0079)
    """
    return (2 if a == b else 1) / math.comb(a + b, a)


def welch(a: Floats, b: Floats, level: float = LEVEL) -> Interval | None:
    """The interval of mean(b) − mean(a) for methods that may differ in spread (Welch 1947); None if neither has any."""
    parts = np.array([values.var(ddof=1) / len(values) for values in (a, b)])
    difference, variance = float(b.mean() - a.mean()), float(parts.sum())
    freedoms = np.array([len(a) - 1, len(b) - 1])
    if not variance:
        return None
    degrees = variance**2 / float((parts**2 / freedoms).sum())
    half = student_t(degrees, level) * math.sqrt(variance)
    return Interval(difference - half, difference + half, level)


def methods_table(rows: Sequence[MethodComparison]) -> str:
    """One line per task: the mean of each training seed, the difference and the verdict; then what so many seeds can show."""
    head = ["task", "first", "second", "difference", "p (Holm)", "verdict"]
    lines = [[row.task, _seeds(row.first), _seeds(row.second), *_difference(row), row.verdict] for row in rows]
    least = max(smallest_p(len(row.first), len(row.second)) * len(rows) for row in rows)
    note = "" if least < SIZE else "; so few can give no verdict: train more, or compare fewer tasks"
    title = "second minus first; each number is the mean reward of one training seed"
    return f"{title}\n{aligned([head, *lines])}\nsmallest p that so many seeds can give, after Holm: {min(least, 1.0):.4f}{note}"


def _difference(row: MethodComparison) -> list[str]:
    return [f"{row.difference:+.3f} {row.interval or '(no spread)'}", f"{row.p_adjusted:.4f}"]


def _seeds(means: Sequence[float]) -> str:
    return " ".join(f"{mean:.3f}" for mean in means)
