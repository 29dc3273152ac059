"""A report: one HTML file with the tables, the plots and the replays of a folder of results.

The file loads nothing from a server or a folder. Replies are untrusted text: the template escapes them, the script sets them
as text, and a content security policy lets the browser run our script only.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import paired_values
from msgrpo_hub.evaluation.paired import Comparison, compare_tasks
from msgrpo_hub.evaluation.repeat_table import COLUMNS, cells, columns, is_repeated
from msgrpo_hub.evaluation.results import Result, find_results, player_key, player_names, run_hash
from msgrpo_hub.evaluation.semantic import semantic_scores
from msgrpo_hub.evaluation.semantic_table import meaning
from msgrpo_hub.evaluation.statistics import BETTING
from msgrpo_hub.evaluation.summary import plays, rank_key
from msgrpo_hub.evaluation.tables import Row, board_note, hypotheses, optimal_moves, played_on, same_episodes, titles
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.rendering.replay_page import Replay, ReplayAssets, read_part
from msgrpo_hub.rendering.report_episodes import collect_replays, episode_numbers, shown_end, worst_episodes
from msgrpo_hub.rendering.report_plots import (
    ENDINGS,
    REPLIES,
    Forest,
    Mistakes,
    Segment,
    endings,
    first_mistakes,
    forest,
    legend,
    number,
    replies,
)
from msgrpo_hub.storage.files import AGAIN, disk_errors, write_atomically


@dataclass(frozen=True, kw_only=True)
class Worst:
    """One of a player's worst episodes."""

    seed: str
    number: int
    reward: float
    regret: float | None
    end: str


Compared = tuple[str, dict[str, Comparison]]
"""A player, and score → its comparison with the base; one where every reward is the success."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One task and its players on the same seeds: the baseline, then the others in the order of their rewards."""

    title: str
    rows: list[tuple[str, Result]]
    """Each player's name and result."""
    fullest: Result
    """The result with the most episodes, which has all references."""
    base: str
    """The player that the others are compared with."""
    forest: Forest
    endings: list[list[Segment]]
    replies: list[list[Segment]]
    mistakes: list[Mistakes | None]
    worst: list[list[Worst]]
    compared: list[Compared]
    """Each other player, compared with the base."""
    repeats: list[Row]
    """The figures of repeats under their header, each with the player's name; empty if every board was played once."""


def write_report(folder: Path, output: Path, baseline: str = "") -> Path:
    """Writes the page of all runs under a folder.

    Args:
        folder: filled by `msgrpo eval`.
        output: the page.
        baseline: name of the player that the others are compared with; if empty, the first model without an adapter.

    Raises:
        UserError: for a folder without runs, an output that is no regular file, a run that does not replay, an unknown baseline,
            or a page that cannot be written.
    """
    if output.exists() and not output.is_file():
        raise UserError(f"--output {str(output)!r} is not a regular file: expected a new file, or one to replace")
    page = report_page(find_results(folder), baseline)
    with disk_errors(output.parent, lambda: "the runs are as they were", again=f"{AGAIN}, or name another file with --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output.resolve(), lambda beside: beside.write_text(page, encoding="utf-8", errors="replace"))
    return output


def report_page(results: Sequence[Result], baseline: str = "") -> str:
    """The page of some runs. Equal runs give equal pages, byte for byte."""
    names = player_names(results)
    if baseline and baseline not in names.values():
        raise UserError(f"no player {baseline!r} in these results: expected one of {', '.join(sorted(names.values()))}")
    groups = same_episodes(results)
    bases = [_base(group, lambda result: names[player_key(result)] == baseline) for group in groups]
    first = [base if baseline or plays(base.summary) else None for base in bases]
    groups = [_base_first(group, base) for group, base in zip(groups, first, strict=True)]
    compared = _compare(groups, bases, names)
    sections = [_section(*parts, names) for parts in zip(titles(groups), groups, bases, compared, strict=True)]
    listed = [result for group in groups for result in group]
    semantic = semantic_scores(listed)
    return _render(
        sections=sections,
        tasks=len({result.task for result in listed}),
        players=sorted(names.values(), key=lambda name: name not in {names[player_key(base)] for base in bases}),
        names=names,
        runs=[(names[player_key(result)], result.config, run_hash(result.config)) for result in listed],
        semantic=semantic,
        meaning=meaning(semantic) if semantic else "",
        identities=[(names[key], json.loads(key)[1]) for key in names],
        tests=sum(len(tests) for section in compared for _, tests in section),
        assets=Replay.assets(result.task for result in listed),
        data=collect_replays(groups, bases, lambda result: names[player_key(result)]),
    )


def _base(group: Sequence[Result], is_chosen: Callable[[Result], bool]) -> Result:
    """The result that the others are compared with: the chosen player's, else that of the first model without an adapter."""
    if chosen := [result for result in group if is_chosen(result)]:
        return chosen[0]
    models = [result for result in group if result.config["identity"].get("kind") == "language model"]
    return next((result for result in models if "adapter" not in result.config["identity"]), group[0])


def _base_first(group: Sequence[Result], base: Result | None) -> list[Result]:
    """The results of a task: the baseline, if there is one, then the others by their scores."""
    return sorted(group, key=lambda result: (result is not base, rank_key(result.summary)))


def _compare(groups: Sequence[Sequence[Result]], bases: Sequence[Result], names: dict[str, str]) -> list[list[Compared]]:
    """Compares every player with the base of its task, with Holm over all tests of the page. Incomplete runs are left out."""
    family = {
        run_hash(other.config): paired_values(base, other)
        for group, base in zip(groups, bases, strict=True)
        for other in group
        if other is not base and base.complete and other.complete
    }
    ranges = {run_hash(other.config): return_range(make_game(other.task)) for group in groups for other in group}
    compared = {row.task: row for row in compare_tasks(family, zlib.crc32("".join(sorted(family)).encode()), ranges)}
    return [
        [(names[player_key(result)], hypotheses(row)) for result in group if (row := compared.get(run_hash(result.config)))]
        for group in groups
    ]


def _section(title: str, results: list[Result], base: Result, compared: list[Compared], names: dict[str, str]) -> Section:
    shown = [names[player_key(result)] for result in results]
    return Section(
        title=title,
        rows=list(zip(shown, results, strict=True)),
        fullest=max(results, key=lambda result: int(result.summary["episodes"])),
        base=names[player_key(base)],
        forest=forest(results, shown),
        endings=[endings(result) for result in results],
        replies=[replies(result) for result in results],
        mistakes=first_mistakes(results, make_game(results[0].task).horizon),
        worst=[_worst(result) for result in results],
        compared=compared,
        repeats=_repeats(list(zip(shown, results, strict=True))),
    )


def _repeats(rows: list[tuple[str, Result]]) -> list[Row]:
    repeated = [(name, result) for name, result in rows if is_repeated(result)]
    head = [["Player", *columns(result)] for _, result in repeated[:1]]
    return [*head, *([name, *cells(result)] for name, result in repeated)]


def _worst(result: Result) -> list[Worst]:
    numbers = episode_numbers(result)
    return [
        Worst(
            seed=str(result.episodes[position].seed),
            number=numbers[result.episodes[position].seed],
            reward=result.scores[position].reward,
            regret=result.scores[position].regret,
            end=shown_end(result.episodes[position]),
        )
        for position in worst_episodes(result)
    ]


def _render(assets: ReplayAssets, **context: Any) -> str:
    style = assets.style + read_part("report_page.css")
    script = assets.script + read_part("report_page.js")
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    template = _environment().from_string(read_part("report_page.html"))
    page = template.render(
        style=style, script=script, shapes=assets.shapes, policy=policy, version=__version__, betting=BETTING, **context
    )
    return page.lstrip()


def _environment() -> Environment:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters |= {"number": number, "legend": legend, "played_on": played_on, "board_note": board_note}
    environment.filters |= {"plays": plays, "optimal_moves": optimal_moves, "key": player_key}
    environment.globals |= {"ENDINGS": ENDINGS, "REPLIES": REPLIES, "REPEATS": COLUMNS}
    return environment


def _digest(text: str) -> str:
    """The source by which a content security policy allows a script or a style sheet."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
