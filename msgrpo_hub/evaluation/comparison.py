"""Comparison of two stored players, task by task, on the same episodes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import TaskComparison, compare_tasks
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.suites import same_rules
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.game import return_range


def compare(first: Path | str | Sequence[Result], second: Path | str | Sequence[Result]) -> list[TaskComparison]:
    """Compares the second player with the first on every task and seed that both have played.

    Args:
        first: the baseline: a folder with the runs of one player, or its results.
        second: the other player, in the same form.

    Returns:
        One comparison per task, of rewards and of success: second minus first, with Holm's correction over all of them.

    Raises:
        UserError: a side has more than one run of a task, the sides have no task in common, or their rules differ.
    """
    a, b = _by_task(first), _by_task(second)
    common = [task for task in a if task in b]
    if not common:
        raise UserError(f"no task in common: {', '.join(a)} against {', '.join(b)}; expected two players on one suite")
    pairs, bounds = {}, {}
    for task in common:
        rules = [same_rules(side[task].config) for side in (a, b)]
        for key in ("task_hash", "harness"):
            if (ours := rules[0][key]) != (theirs := rules[1][key]):
                raise UserError(f"the rules of {task} differ ({key} {ours} and {theirs}): play both with the same version")
        pairs[task], bounds[task] = _aligned(a[task], b[task]), return_range(base_game(make_game(task)))
    return compare_tasks(pairs, zlib.crc32("".join(sorted(common)).encode()), bounds)


def _by_task(runs: Path | str | Sequence[Result]) -> dict[str, Result]:
    results = find_results(Path(runs)) if isinstance(runs, (str, Path)) else list(runs)
    tasks: dict[str, Result] = {}
    for result in results:
        if (other := tasks.setdefault(result.task, result)) is not result:
            raise UserError(f"two runs of {result.task}, {other.folder} and {result.folder}: expected one; give a deeper folder")
    return tasks


def _aligned(a: Result, b: Result) -> tuple[list[float], list[float], list[bool], list[bool]]:
    """Rewards and successes of the episodes that both runs have, in the same order."""
    of_b = {episode.seed: score for episode, score in zip(b.episodes, b.scores, strict=True)}
    shared = [(score, of_b[e.seed]) for e, score in zip(a.episodes, a.scores, strict=True) if e.seed in of_b]
    if not shared:
        splits = f"{a.config['split']} and {b.config['split']}"
        raise UserError(f"{a.task}: no episode in common ({splits} episodes); expected two runs on one split")
    rewards = [first.reward for first, _ in shared], [second.reward for _, second in shared]
    return *rewards, [first.success for first, _ in shared], [second.success for _, second in shared]
