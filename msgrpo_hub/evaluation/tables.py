"""Results as text: tables for the terminal and for Markdown, and the formats of their numbers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.episode import NEAR
from msgrpo_hub.evaluation.comparison import MethodComparison, smallest_p
from msgrpo_hub.evaluation.paired import SIZE, Comparison, Rank, TaskComparison, ranks_of
from msgrpo_hub.evaluation.results import Result, player_key, player_names
from msgrpo_hub.evaluation.statistics import BETTING, NO_INTERVAL, board_means
from msgrpo_hub.evaluation.suites import run_seeds, suite_names
from msgrpo_hub.evaluation.summary import REFERENCE, best_reference, plays, rank_key
from msgrpo_hub.games import distinct_boards, is_remote, make_game, splits_of
from msgrpo_hub.players.registry import kind_of

Row = Sequence[str]

NONE = "–"
"""Shown where a player or a game has no such value."""
HEADS = ("temperature", "token limit", "prompt format", "engine")
"""Columns that show how a model samples, in the order of `acting`."""
FAULTS = "unparsed / truncated / illegal"
NEARLY_EQUAL = "† nearly all episodes scored the same: the interval allows for rare returns anywhere in the game's return range"
RANKS = (
    "rank: the places that paired tests leave open (sign flips of the rewards on the same seeds, Holm's correction over all\n"
    "pairs of the table); rows whose ranks overlap may be equally good"
)
DETECTABLE = (
    "detectable: the smallest difference that so many pairs find 8 times in 10 by the test shown, after Holm, at the\n"
    "correlation shown (0 where it is –). It has the sign of the difference, unless no such difference can be found\n"
    "(a player that never fails); none: these pairs find no difference that often"
)
REPEATS = "run to run: standard deviation of the mean reward when the same boards are played again"
_LATEX = str.maketrans({each: rf"\{each}" for each in "&%$#_{}"} | {"–": "--", "†": r"\dag{}", "…": r"\ldots{}"})
FEW_PARSED = "under half of its replies parsed: the verdict is mostly about doing nothing"


# ---- numbers and layout


def with_interval(value: Mapping[str, Any] | None) -> str:
    """A score with its 95 % interval; † marks an interval that rests on the return range (see `NEARLY_EQUAL`).

    >>> with_interval({"mean": 0.5, "low": 0.4, "high": 0.6}), with_interval({"mean": 0.5, "low": None, "high": None})
    ('0.500 [0.400, 0.600]', '0.500 (no interval)')
    """
    if value is None:
        return NONE
    if value["low"] is None:
        return f"{value['mean']:z.3f} {NO_INTERVAL}"
    mark = "†" if value.get("rule") == BETTING else ""
    return f"{value['mean']:z.3f} [{value['low']:z.3f}, {value['high']:z.3f}]{mark}"


def short(name: str, width: int = 36) -> str:
    """A name shortened in the middle, since the ends distinguish players.

    >>> short("Qwen/Qwen2.5-3B-Instruct+adapter", 20)
    'Qwen/Qwen2…t+adapter'
    """
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-((width - 1) // 2) :]}"


def aligned(rows: Sequence[Row], layout: str = "table") -> str:
    """Rows as aligned columns under a header line, the first to the left; or in the `layout` `markdown` or `latex`."""
    if layout == "markdown":
        return f"\n{markdown(rows[0], rows[1:])}\n"
    if layout == "latex":
        head, *lines = (" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in rows)
        columns = "l" + "r" * (len(rows[0]) - 1)
        return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def markdown(head: Row, rows: Iterable[Row]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def noted(table: str, gap: str = "\n") -> str:
    """A table with the footnote for its † marks."""
    return f"{table}{gap}{NEARLY_EQUAL}{'.' if len(gap) > 1 else ''}" if "†" in table else table


# ---- results


def results_table(results: Sequence[Result], name: Callable[[Result], str] | None = None, layout: str = "table") -> str:
    """One block per task and number of episodes, with a line per player by `rank_key`; `name` gives a result's player."""
    unique = player_names(results)
    groups, blocks = same_episodes(results), []
    for group in groups:
        first = max(group, key=lambda result: int(result.summary["episodes"]))  # a failed run may lack references
        solved = first.summary["luck_adjusted"] is not None
        kind = "exact" if solved else "played on the same seeds"
        references = f"   {kind}: {references_of(first)}" if first.summary["references"] else ""
        head = [f"{first.task}   {played_on(first)}{references}", board_note(first)]
        if references and best_reference(first.summary["references"]) is None:
            head.append(f"{REFERENCE} does not know {first.task}: left out")
        columns = ["norm.", "luck-adjusted", "optimal moves"] if solved else ["norm."]
        rows = _cells(group, name or (lambda result: short(unique[player_key(result)])))
        one_score = all(row["reward"] == row["success"] for row in rows)
        settings = {title: {row[title] for row in rows} - {NONE} for title in HEADS}  # one value of all models is a note
        head.append(", ".join(f"{title} {min(values)}" for title, values in settings.items() if len(values) == 1))
        varying = [title for title, values in settings.items() if len(values) > 1]
        picked = ["player", "rank", "reward", *([] if one_score else ["success"]), *columns, FAULTS, *varying]
        titles = ["reward = success" if one_score and title == "reward" else title for title in picked]
        table = aligned([titles, *([row[title] for title in picked] for row in rows)], layout)
        blocks.append("\n".join([*filter(None, head), noted(table)]))
    return "\n\n".join([*blocks, *([RANKS] if any(len(group) > 1 for group in groups) else [])])


def markdown_table(results: Sequence[Result], name: Callable[[Result], str]) -> str:
    """Complete results on the same episodes in Markdown: the references, then a line per player, in the order of `rank_key`."""
    note = board_note(results[0])
    title = f"**{results[0].task}**, {played_on(results[0])}; {references_of(results[0])}\n" + (f"\n*{note}*\n" if note else "")
    rows = _cells(results, name)
    settings = [title for title in HEADS if any(row[title] != NONE for row in rows)]
    picked = ["player", "rank", "reward", "success", "norm.", "luck-adjusted", FAULTS, *settings]
    head = ["normalised" if column == "norm." else column for column in picked]
    return noted(f"{title}\n{markdown(head, ([row[column] for column in picked] for row in rows))}", "\n\n")


def _cells(results: Sequence[Result], name: Callable[[Result], str]) -> list[dict[str, str]]:
    """Column → cell of each result, in the order of `rank_key`."""
    best_first, rows = sorted(results, key=lambda result: rank_key(result.summary)), []
    for result, rank in zip(best_first, ranks(best_first), strict=True):
        summary = result.summary
        faults = faults_of(summary) + (" ABOVE THE OPTIMUM" if summary["above_optimum"] else "")
        faults += "" if summary["complete"] else f" NOT COMPLETE, {summary['failed']} failed"
        cells = {"player": name(result), "rank": NONE if rank is None or len(results) == 1 else str(rank)}
        cells |= {title: with_interval(summary[title.replace("-", "_")]) for title in ("reward", "success", "luck-adjusted")}
        cells["norm."] = NONE if summary["normalised"] is None else f"{summary['normalised']:.2f}"
        rows.append({**cells, "optimal moves": optimal_moves(summary), FAULTS: faults, **acting(result)})
    return rows


def faults_of(rates: Mapping[str, Any]) -> str:
    """The cell of the column `FAULTS`, from the rates of a player's replies."""
    shares = " / ".join(f"{rates[name]:.1%}" for name in ("unreadable_rate", "truncated_rate", "illegal_rate"))
    return shares if plays(rates) else f"{shares} DOES NOT PLAY"


def same_episodes(results: Sequence[Result]) -> list[list[Result]]:
    """Comparable results: grouped by task, rules, split, episodes and repeats. A player counts once, complete if possible."""
    groups: dict[tuple[Any, ...], dict[str, Result]] = {}
    for result in sorted(results, key=lambda result: not result.complete):
        config = result.config
        rules = (result.repeats, str(config["task_hash"]), str(config["harness"]))
        played = (result.task, config["split"], config["episodes"], *rules)
        groups.setdefault(played, {}).setdefault(player_key(result), result)
    return [list(groups[played].values()) for played in sorted(groups)]


def titles(groups: Sequence[Sequence[Result]]) -> list[str]:
    """A name for each group of `same_episodes`: its task, with its episodes and rules if other groups have the same task."""
    names = [group[0].task for group in groups]
    for more in (_episodes, lambda result: f"harness {result.config['harness']}, rules {result.config['task_hash']}"):
        found = Counter(names)
        names = [f"{name}, {more(group[0])}" if found[name] > 1 else name for name, group in zip(names, groups, strict=True)]
    return names


def _episodes(result: Result) -> str:
    times = f", each {result.repeats} times" if result.repeats > 1 else ""
    return f"{result.config['episodes']} {result.config['split']} episodes{times}"


def played_on(result: Result) -> str:
    """The number of episodes, the split and the number of boards, if known, such as `200 test episodes on 75 boards`."""
    if is_remote(make_game(result.task)):
        return _episodes(result)
    boards = distinct_boards(result.task, tuple(run_seeds(result.config)))
    comma = "," if result.repeats > 1 else ""
    return f"{_episodes(result)}{comma} on {boards} board{'s' if boards > 1 else ''}"


def board_note(result: Result) -> str:
    """A warning that training may have the same boards; empty if it cannot."""
    if is_remote(make_game(result.task)):
        return "The rules of the game run elsewhere: training may have the same boards, and nothing is simulated again."
    return "" if splits_of(result.task).are_apart else "The game has too few boards to divide: training has the same."


def references_of(result: Result) -> str:
    """The references of a task with their values, the lowest first."""
    ends = sorted(result.summary["references"].items(), key=lambda end: (float(end[1]), end[0]))
    return ", ".join(f"{name} {value:.2f}" for name, value in ends)


def optimal_moves(summary: Mapping[str, Any]) -> str:
    """The share of optimal moves among the decisions that matter, and the number of these decisions.

    >>> optimal_moves({"decisions": 210, "optimal_decisions": 0.5}), optimal_moves({"decisions": 0, "optimal_decisions": None})
    ('50% of 210', '–')
    """
    rate = summary["optimal_decisions"]
    return NONE if rate is None else f"{rate:.0%} of {summary['decisions']:,}"


def ranks(results: Sequence[Result]) -> list[Rank | None]:
    """The rank of each result on the same episodes; None for a run that is not complete or whose player does not play."""
    rewards = {}
    for number, result in enumerate(results):
        if result.complete and plays(result.summary):
            boards = [episode.seed for episode in result.episodes]
            rewards[number] = board_means(np.array([score.reward for score in result.scores]), boards)
    found = dict(zip(rewards, ranks_of(list(rewards.values())), strict=True))
    return [found.get(number) for number in range(len(results))]


def repeat_table(results: Sequence[Result], layout: str = "table") -> str:
    """One block per task, a line per player; empty if no board was played several times."""
    blocks = []
    for group in same_episodes([result for result in results if repeat_figures(result)]):
        rows: list[Row] = [["player", *repeat_figures(group[0])]]
        rows += [[short(result.player), *repeat_figures(result).values()] for result in group]
        blocks.append(noted(f"{group[0].task}   {played_on(group[0])}\n{aligned(rows, layout)}"))
    return "\n\n".join([*blocks, REPEATS]) if blocks else ""


def repeat_figures(result: Result) -> dict[str, str]:
    """Column → the figure of a run that plays boards several times; empty for other runs."""
    figures = result.summary.get("repeated", {})
    if not figures.get("boards"):
        return {}
    chances = {f"pass@{k}": with_interval(chance) for k, chance in figures["pass_at"].items()}
    return {"run to run": f"{figures['run_to_run']['reward']:.3f}"} | chances


def near_draws(results: Sequence[Result]) -> list[str]:
    """One line per local model: how many of its samples were close to a rounding boundary."""
    counted, lines = [result for result in results if "near_draws" in result.summary], []
    for key, player in player_names(counted).items():
        own = [result for result in counted if player_key(result) == key]
        scored = own[0].config["identity"].get("mode") == "score"  # one choice per step
        near = sum(result.summary["near_draws"] for result in own)
        draws = sum(int(result.summary["steps" if scored else "reply_tokens"] or 0) for result in own)
        lines.append(f"{player}: {near:,} of {draws:,} samples are within {NEAR:g} of a boundary: other rounding may change them")
    return lines


# ---- how a model samples


def acting(result: Result) -> dict[str, str]:
    """Column of `HEADS` → how the player of a run samples. Only models have such settings."""
    identity = result.config["identity"]
    if not (kind := kind_of(identity)).sampled:
        return dict.fromkeys(HEADS, NONE)
    limits = [f"{name.replace('_', '-')} {identity[name]}" for name in ("top_k", "top_p") if name in identity]
    temperature = NONE if identity.get("temperature") is None else f"{identity['temperature']:g}"
    temperature = "actions scored" if identity.get("mode") == "score" else ", ".join([temperature, *limits])
    engine = "server" if kind.served else str(identity.get("engine", "not recorded"))
    limit = identity.get("max_new_tokens")
    return dict(zip(HEADS, (temperature, NONE if limit is None else str(limit), result.prompt_format, engine), strict=True))


def eval_command(results: Sequence[Result], output_dir: str) -> str:
    """The command that plays a model with the suite and the settings that most models of a table share.

    If that suite is not built in, the command before it writes one of the same tasks. The runs may be untrusted: the commands
    contain only numbers, games, and names of built-in suites and prompt formats.
    """
    models = [result for result in results if kind_of(result.config["identity"]).sampled]
    [(suite, _)] = Counter(result.config["suite"] for result in models or results).most_common(1) or [("standard", 0)]
    given: Counter[tuple[str, ...]] = Counter()
    for result in models:
        identity = result.config["identity"]
        numbers = {name: identity.get(name) for name in ("temperature", "max_new_tokens", "top_k", "top_p")}
        flags = [f"--{name.replace('_', '-')} {value}" for name, value in numbers.items() if isinstance(value, (int, float))]
        flags += ["--mode score"] if identity.get("mode") == "score" else []
        if result.prompt_format in PROMPT_FORMATS and result.prompt_format != THINK_ACTION.name:
            flags.append(f"--prompt-format {result.prompt_format}")
        given[tuple(flags)] += 1
    shared = given.most_common(1)[0][0] if given else ()
    known, first = suite in suite_names(), ""
    if not known:
        own = [result.config for result in results if result.config["suite"] == suite]
        games = shlex.join(sorted({config["task"] for config in own}))
        first = f"msgrpo games {games} --suite --episodes {own[0]['episodes']} --split {own[0]['split']} > mine.toml\n"
        shared = (*shared, *([f"--repeats {own[0]['repeats']}"] if own[0].get("repeats", 1) > 1 else []))
    return first + " ".join(["msgrpo eval PLAYER --suite", suite if known else "mine.toml", *shared, "--output-dir", output_dir])


# ---- comparisons


def comparison_table(compared: Sequence[TaskComparison], layout: str = "table") -> str:
    """One line per task and hypothesis, with the verdict."""
    rows = [["task", "score", "difference", "p (Holm)", "correlation", "detectable", "n", "verdict"]]
    for row in compared:
        for name, found in hypotheses(row).items():
            correlation = NONE if found.correlation is None else f"{found.correlation:.2f}"
            detectable = "none" if found.detectable is None else f"{found.detectable:+.3f}"
            rows.append([row.task, name, *_tested(found), correlation, detectable, str(found.n), found.verdict])
    tests = compared[0].success.family if compared else 0
    title = f"second minus first, on the same seeds; {tests} hypothes{'is' if tests == 1 else 'es'}"
    idle = [f"{row.task}: {short(name)} does not play, {FEW_PARSED}" for row in compared for name in row.not_playing]
    return "\n".join([noted(f"{title}\n{aligned(rows, layout)}"), *idle, DETECTABLE])


def _tested(found: Comparison | MethodComparison) -> tuple[str, str]:
    """The difference with its interval, and p."""
    mark = "†" if found.interval and found.interval.rule == BETTING else ""
    p = f"{found.p_adjusted:.4f}" if found.p_adjusted >= 1e-4 else "< 0.0001"
    return f"{found.difference:+.3f} {found.interval or NO_INTERVAL}{mark}", p


def methods_table(rows: Sequence[MethodComparison], layout: str = "table") -> str:
    """One line per task: the mean of each training seed, the difference and the verdict; then the smallest possible p."""
    lines = [["task", "first", "second", "difference", "p (Holm)", "verdict"]]
    for row in rows:
        seeds = [" ".join(f"{mean:.3f}" for mean in means) for means in (row.first, row.second)]
        lines.append([row.task, *seeds, *_tested(row), row.verdict])
    least = max(smallest_p(len(row.first), len(row.second)) * len(rows) for row in rows)
    note = "" if least < SIZE else "; so few can give no verdict: train more, or compare fewer tasks"
    title = "second minus first; each number is the mean reward of one training seed"
    return f"{title}\n{aligned(lines, layout)}\nsmallest p that so many seeds can give, after Holm: {min(least, 1.0):.4f}{note}"


def hypotheses(row: TaskComparison) -> dict[str, Comparison]:
    """The comparisons of a task by name: one if every reward is the success."""
    if row.rewards is row.success:
        return {"reward = success": row.success}
    return {"reward": row.rewards, "success": row.success}
