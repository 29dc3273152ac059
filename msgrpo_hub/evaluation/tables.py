"""Results as tables for the terminal and for Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgrpo_hub.evaluation.acting import acting, shown_columns
from msgrpo_hub.evaluation.paired import Comparison, TaskComparison
from msgrpo_hub.evaluation.ranks import RANKS, ranks
from msgrpo_hub.evaluation.results import Result, player_key, player_names
from msgrpo_hub.evaluation.statistics import BETTING, SMALLEST_SAMPLE
from msgrpo_hub.evaluation.suites import repeats_of, run_seeds
from msgrpo_hub.evaluation.summary import REFERENCE, best_reference, plays, rank_key
from msgrpo_hub.games import distinct_boards, is_remote, make_game, splits_of

Row = Sequence[str]

NEARLY_EQUAL = "† nearly all episodes scored the same: the interval allows for rare returns anywhere in the game's return range"
"""The footnote of tables with such an interval. It covers at least 95 %, but it is wide."""


def results_table(results: Sequence[Result], name: Callable[[Result], str] | None = None) -> str:
    """One block per task and number of episodes: its references, then a line per player, in the order of `rank_key`.

    Args:
        results: the runs.
        name: result → name of its player; by default a unique one, shortened.
    """
    unique = player_names(results)
    groups = same_episodes(results)
    blocks = [_block(group, name or (lambda result: short(unique[player_key(result)]))) for group in groups]
    return "\n\n".join([*blocks, *([RANKS] if any(len(group) > 1 for group in groups) else [])])


def same_episodes(results: Sequence[Result]) -> list[list[Result]]:
    """Results grouped by task, its rules, split, episodes and repeats, in this order: only those of one group are comparable.

    A player with several runs of the same episodes, such as those of two suites, counts once: with a complete one, if it has it.
    """

    def played(result: Result) -> tuple[str, str, int, int, str, str]:
        config = result.config
        how = str(config["task_hash"]), str(config["harness"])
        return result.task, config["split"], config["episodes"], repeats_of(config), *how

    complete_first = sorted(results, key=lambda result: (*played(result), not result.complete))
    return [_each_player_once(group) for _, group in groupby(complete_first, key=played)]


def _each_player_once(results: Iterable[Result]) -> list[Result]:
    found: dict[str, Result] = {}
    for result in results:
        found.setdefault(player_key(result), result)
    return list(found.values())


def titles(groups: Sequence[Sequence[Result]]) -> list[str]:
    """A name for each group of `same_episodes`: its task, with as much of its episodes and rules as tells the groups apart."""
    names = [group[0].task for group in groups]
    for more in (_episodes, _rules):
        found = Counter(names)
        names = [f"{name}, {more(group[0])}" if found[name] > 1 else name for name, group in zip(names, groups, strict=True)]
    return names


def _rules(result: Result) -> str:
    return f"harness {result.config['harness']}, rules {result.config['task_hash']}"


def _episodes(result: Result) -> str:
    times = f", each {repeats} times" if (repeats := repeats_of(result.config)) > 1 else ""
    return f"{result.config['episodes']} {result.config['split']} episodes{times}"


def played_on(result: Result) -> str:
    """How many episodes of which split, on how many boards, such as `200 test episodes on 75 boards`."""
    boards = distinct_boards(result.task, tuple(run_seeds(result.config)))
    comma = "," if repeats_of(result.config) > 1 else ""
    return f"{_episodes(result)}{comma} on {boards} board{'s' if boards > 1 else ''}"


def board_note(result: Result) -> str:
    """What a reader must know of the boards; empty if no player can have been trained on them."""
    if is_remote(make_game(result.task)):
        return "The rules of the game run elsewhere: training may have the same boards, and nothing is simulated again."
    return "" if splits_of(result.task).are_apart else "The game has too few boards to divide: training has the same."


def _block(results: list[Result], name: Callable[[Result], str]) -> str:
    first = max(results, key=lambda result: int(result.summary["episodes"]))  # a failed run may lack references
    solved = first.summary["luck_adjusted"] is not None
    kind = "exact" if solved else "played on the same seeds"
    facts = f"{first.task}   {played_on(first)}   {kind}: {references_of(first)}"
    title = "\n".join(filter(None, [facts, board_note(first)]))
    if first.summary["references"] and best_reference(first.summary["references"]) is None:
        title += f"\n{REFERENCE} does not know {first.task}: left out"
    best_first, columns = sorted(results, key=lambda result: rank_key(result.summary)), shown_columns(results)
    head = ["player", "rank", "reward", "success", "norm.", *(["luck-adjusted", "optimal moves"] if solved else [])]
    rows = [
        [name(r), place, *_figures(r), *(_exact(r) if solved else []), _faults(r), *(acting(r)[column] for column in columns)]
        for r, place in zip(best_first, _places(best_first), strict=True)
    ]
    return noted(f"{title}\n{aligned([[*head, 'unparsed / truncated / illegal', *columns], *rows])}")


def _places(results: Sequence[Result]) -> list[str]:
    """The ranks of results on the same episodes; a dash for a run that has none, and for a single run."""
    return ["–" if rank is None or len(results) == 1 else str(rank) for rank in ranks(results)]


def references_of(result: Result) -> str:
    """The references of a task with their values, the lowest first."""
    ends = sorted(result.summary["references"].items(), key=lambda end: (float(end[1]), end[0]))
    return ", ".join(f"{name} {value:.2f}" for name, value in ends)


def noted(table: str) -> str:
    """A table with the footnote that its marks refer to."""
    return f"{table}\n{NEARLY_EQUAL}" if "†" in table else table


def _figures(result: Result) -> list[str]:
    summary = result.summary
    norm = "–" if summary["normalised"] is None else f"{summary['normalised']:.2f}"
    return [with_interval(summary["reward"]), with_interval(summary["success"]), norm]


def _exact(result: Result) -> list[str]:
    return [with_interval(result.summary["luck_adjusted"]), optimal_moves(result.summary)]


def optimal_moves(summary: Mapping[str, Any]) -> str:
    """The share of optimal moves among the decisions that matter, and the number of these decisions.

    >>> optimal_moves({"decisions": 210, "optimal_decisions": 0.5}), optimal_moves({"decisions": 0, "optimal_decisions": None})
    ('50% of 210', '–')
    """
    rate = summary["optimal_decisions"]
    return "–" if rate is None else f"{rate:.0%} of {summary['decisions']:,}"


def _faults(result: Result) -> str:
    summary = result.summary
    rates = " / ".join(f"{summary[name]:.1%}" for name in ("unreadable_rate", "truncated_rate", "illegal_rate"))
    above = " ABOVE THE OPTIMUM" if summary["above_optimum"] else ""
    passive = "" if plays(summary) else " DOES NOT PLAY"
    return rates + passive + above + ("" if summary["complete"] else f" NOT COMPLETE, {summary['failed']} failed")


def markdown_table(results: Sequence[Result], name: Callable[[Result], str]) -> str:
    """Results on the same episodes in Markdown: the references, then a line per player, in the order of `rank_key`.

    Args:
        results: complete results, a group of `same_episodes`.
        name: result → name of its player, as Markdown.
    """
    note = board_note(results[0])
    title = f"**{results[0].task}**, {played_on(results[0])}; {references_of(results[0])}\n" + (f"\n*{note}*\n" if note else "")
    best_first, columns = sorted(results, key=lambda result: rank_key(result.summary)), shown_columns(results)
    head = ["player", "rank", "reward", "success", "normalised", "luck-adjusted", "unparsed / truncated / illegal", *columns]
    rows = [
        [name(r), place, *_figures(r), with_interval(r.summary["luck_adjusted"]), _faults(r), *(acting(r)[c] for c in columns)]
        for r, place in zip(best_first, _places(best_first), strict=True)
    ]
    table = f"{title}\n{markdown(head, rows)}"
    return f"{table}\n\n{NEARLY_EQUAL}." if "†" in table else table


def markdown(head: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown."""
    return "\n".join([piped(head), f"|{'---|' * len(head)}", *map(piped, rows)])


def piped(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"


def with_interval(value: dict[str, Any] | None) -> str:
    """A score with its 95 % interval; † marks one that rests on the return range (see `NEARLY_EQUAL`).

    >>> with_interval({"mean": 0.5, "low": 0.4, "high": 0.6}), with_interval({"mean": 0.5, "low": None, "high": None})
    ('0.500 [0.400, 0.600]', '0.500 (n < 30)')
    """
    if value is None:
        return "–"
    if value["low"] is None:
        return f"{value['mean']:z.3f} (n < 30)"
    mark = "†" if value.get("rule") == BETTING else ""
    return f"{value['mean']:z.3f} [{value['low']:z.3f}, {value['high']:z.3f}]{mark}"


DETECTABLE = (
    "detectable: the smallest difference that so many pairs find 8 times in 10 by the test shown, after Holm, at the\n"
    "correlation shown (0 where it is –); with the sign of the difference, unless no such one can be found, as of a player\n"
    "that never fails; none: they find none so often\n"
    "pairs needed: how many would find a true difference as large as the one seen, 8 times in 10"
)
"""What the last columns of a comparison mean."""


FEW_PARSED = "under half of its replies parsed: the verdict is mostly about doing nothing"


def comparison_table(compared: Sequence[TaskComparison]) -> str:
    """One line per task and hypothesis, with the verdict."""
    head = ["task", "score", "difference", "p (Holm)", "correlation", "detectable", "pairs needed", "n", "verdict"]
    rows = [[row.task, name, *_compared(found)] for row in compared for name, found in hypotheses(row).items()]
    tests = compared[0].success.family if compared else 0
    title = f"second minus first, on the same seeds; {tests} hypothes{'is' if tests == 1 else 'es'}"
    idle = [f"{row.task}: {short(name)} does not play, {FEW_PARSED}" for row in compared for name in row.not_playing]
    return "\n".join([noted(f"{title}\n{aligned([head, *rows])}"), *idle, DETECTABLE])


def hypotheses(row: TaskComparison) -> dict[str, Comparison]:
    """The comparisons of a task by name: one where every reward is the success."""
    if row.rewards is row.success:
        return {"reward = success": row.success}
    return {"reward": row.rewards, "success": row.success}


def _compared(c: Comparison) -> list[str]:
    difference = f"{c.difference:+.3f} {c.interval or ('(n < 30)' if c.n < SMALLEST_SAMPLE else '(no interval)')}"
    mark = "†" if c.interval and c.interval.rule == BETTING else ""
    correlation = "–" if c.correlation is None else f"{c.correlation:.2f}"
    detectable = "none" if c.detectable is None else f"{c.detectable:+.3f}"
    needed = "–" if c.pairs_needed is None or c.verdict != "inconclusive" else f"{c.pairs_needed:,}"
    p = f"{c.p_adjusted:.4f}" if c.p_adjusted >= 1e-4 else "< 0.0001"
    return [difference + mark, p, correlation, detectable, needed, str(c.n), c.verdict]


def aligned(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under a header line; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def short(name: str, width: int = 36) -> str:
    """A name shortened in the middle, since the ends distinguish players.

    >>> short("Qwen/Qwen2.5-3B-Instruct+adapter", 20)
    'Qwen/Qwen2…t+adapter'
    """
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-((width - 1) // 2) :]}"
