"""Results as text, for people: in the terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from msgrpo_hub.evaluation.paired import Comparison, TaskComparison
from msgrpo_hub.evaluation.runner import Result

Row = Sequence[str]


def results_table(results: Sequence[Result]) -> str:
    """One block per task and number of episodes: its references, then a line per player, the best reward first."""
    blocks = [_block(list(group)) for _, group in groupby(sorted(results, key=_episodes), key=_episodes)]
    return "\n\n".join(blocks)


def _episodes(result: Result) -> tuple[str, str, int]:
    """Which episodes were played: only results on the same ones stand in one block."""
    return result.task, result.config["split"], result.config["episodes"]


def _block(results: list[Result]) -> str:
    first = max(results, key=lambda result: int(result.summary["episodes"]))  # of a run that failed, references may be missing
    solved = first.summary["luck_adjusted"] is not None
    ends = sorted(first.summary["references"].items(), key=lambda end: float(end[1]))
    references = ", ".join(f"{name} {value:.2f}" for name, value in ends)
    kind = "exact" if solved else "played on the same seeds"
    title = f"{first.task}   {first.config['episodes']} {first.config['split']} episodes   {kind}: {references}"
    head = ["player", "reward", "success", "norm."]
    head += ["luck-adjusted", "optimal moves"] if solved else []
    rows = [[*_line(result), *(_exact(result) if solved else []), _faults(result)] for result in sorted(results, key=_by_reward)]
    return f"{title}\n{aligned([[*head, 'unread / cut / illegal'], *rows])}"


def _by_reward(result: Result) -> float:
    reward = result.summary["reward"]
    return -reward["mean"] if reward else float("inf")


def _line(result: Result) -> list[str]:
    summary = result.summary
    norm = "–" if summary["normalised"] is None else f"{summary['normalised']:.2f}"
    return [short(result.player), with_interval(summary["reward"]), with_interval(summary["success"]), norm]


def _exact(result: Result) -> list[str]:
    rate = result.summary["optimal_rate"]
    return [with_interval(result.summary["luck_adjusted"]), "–" if rate is None else f"{rate:.0%}"]


def _faults(result: Result) -> str:
    summary = result.summary
    rates = " / ".join(f"{summary[name]:.1%}" for name in ("unreadable_rate", "truncated_rate", "illegal_rate"))
    above = " ABOVE THE OPTIMUM" if summary["above_optimum"] else ""
    return rates + above + ("" if summary["complete"] else f" NOT COMPLETE, {summary['failed']} failed")


def with_interval(value: dict[str, Any] | None) -> str:
    """A figure with its 95 % interval.

    >>> with_interval({"mean": 0.5, "low": 0.4, "high": 0.6}), with_interval({"mean": 0.5, "low": None, "high": None})
    ('0.500 [0.400, 0.600]', '0.500 (n < 30)')
    """
    if value is None:
        return "–"
    if value["low"] is None:
        return f"{value['mean']:.3f} (n < 30)"
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def comparison_table(compared: Sequence[TaskComparison]) -> str:
    """One line per task and score, with the verdict."""
    head = ["task", "score", "difference", "p (Holm)", "correlation", "detectable", "n", "verdict"]
    rows = [
        [row.task, name, *_compared(comparison)]
        for row in compared
        for name, comparison in (("reward", row.rewards), ("success", row.success))
    ]
    return f"second minus first, on the same seeds\n{aligned([head, *rows])}"


def _compared(c: Comparison) -> list[str]:
    interval = f" {c.interval}" if c.interval else " (n < 30)"
    correlation = "–" if c.correlation is None else f"{c.correlation:.2f}"
    detectable = "–" if c.detectable is None else f"{c.detectable:.3f}"
    p = f"{c.p_adjusted:.4f}" if c.p_adjusted >= 1e-4 else "< 0.0001"
    return [f"{c.difference:+.3f}{interval}", p, correlation, detectable, str(c.n), c.verdict]


def aligned(rows: Sequence[Row]) -> str:
    """Rows as columns under a header line; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def short(name: str, width: int = 36) -> str:
    """A name shortened in the middle: the ends tell two players apart."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-(width // 2 - 1) :]}"
