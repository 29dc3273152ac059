"""The Leaderboard tab: the bundled results, or a dataset's results on the Hub, as rows and as HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import names
import opening
import players
from present import drawn, interval, number

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.tables import HEADS, NONE
from msgrpo_hub.hub import read_leaderboard
from msgrpo_hub.hub.leaderboard import as_rows

Row = dict[str, Any]

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[\w./-]{1,95})?", re.ASCII)


def leaderboard(game: str = "", results: str = "") -> list[dict[str, Any]]:
    """Returns scores with 95 % intervals, best first in each game; players that do not play are last and have no rank.

    Args:
        game: id of a game; empty for all games.
        results: USER/NAME of a dataset with published results; empty for the bundled results.

    Returns:
        Rows with `task`, `player`, `rank` (the best and the worst place that paired tests leave open), `episodes`, `reward` and
        `success` (each `mean`, `low`, `high`), `normalised` (0 is random play, 1 the reference), `silent` (the reward of doing
        nothing), `plays` (whether at least half of the replies were parsed), how the player acted (`temperature`, `token limit`,
        `prompt format`, `engine`) and `link` (empty if the player has no page).
    """
    rows = []
    for row in published(results) if results else players.bundled("leaderboard"):
        repo = row["player"].partition("+")[2] or row["player"]
        page = f"https://huggingface.co/{repo.partition('@')[0]}" if _REPO.fullmatch(repo) else ""  # a built-in player has none
        if not game or row["task"] == game:
            rows.append({**row, "link": page})
    return sorted(
        rows,
        key=lambda row: (row["task"], not row["plays"], -row["reward"]["mean"] if row["reward"] else math.inf, row["player"]),
    )


def published(source: str) -> list[dict[str, Any]]:
    """The results of a dataset on the Hub; every run is verified first. Raises `UserError` for a dataset without results."""
    if not isinstance(source, str) or len(source) > 200 or not _REPO.fullmatch(source) or ".." in source or Path(source).exists():
        raise UserError(f"{str(source)[:60]!r} is not a dataset: expected USER/NAME or USER/NAME@REVISION")
    repo, _, revision = source.partition("@")
    with players.DATASETS.place():
        found = players.DATASETS.run(partial(read_leaderboard, repo, revision=revision or None))
    return as_rows(found)


# ---- the page


def leaderboard_page(rows: Sequence[Row]) -> str:
    """A block for each game, and below them all figures."""
    if not rows:
        return '<p class="verdict">No results for this game: choose one from the list.</p>'
    order = list(names.GAMES)
    games = {task: list(of) for task, of in groupby(rows, key=lambda row: row["task"])}
    shown = sorted(games, key=lambda task: (task not in order, order.index(task) if task in order else 0, task))
    blocks = "".join(_block(task, games[task]) for task in shown)
    everything = f"<summary>All figures in one table</summary>{table(rows)}"
    return f'<div class="games">{blocks}</div><details class="all">{everything}</details>'


def _block(task: str, rows: Sequence[Row]) -> str:
    """One game: rank, player, reward as a bar, success, and a link to a replay."""
    scores = [row["reward"] for row in rows if row["reward"]]
    ends = [0.0, *(score[end] for score in scores for end in ("mean", "low", "high") if score[end] is not None)]
    body = ""
    for row in rows:
        name, trained = watched(row), row["player"] in players.ADAPTERS
        title = names.player(name) if name in players.BUILT_IN else str(row["player"])
        badge = ' <span class="badge">trained here</span>' if trained else ""
        success = opening.percent(row["success"]["mean"]) if row["success"] else "–"
        address, kind = escape(opening.link(row["task"], 0, name)), "trained" if trained else ""
        rank, player = _place(row, title)
        bar = drawn(row["reward"], min(ends), max(ends), bar=True) if row["reward"] else ""
        link = f'<a href="{address}">▶<span class="unseen"> replay of {escape(title)}</span></a>'
        body += (
            f'<tr class="{kind}">{rank}<th scope="row">{player}{badge}</th>'
            f'<td class="bar">{bar}{_figure(row["reward"])}</td><td>{success}</td>'
            f"<td>{link if name else ''}</td></tr>"
        )
    heads = ("Rank", "Player", "Reward", "Success", '<span class="unseen">Replay</span>')
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f"<section><h2>{escape(names.game(task))} <small>{escape(task)}</small></h2>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(names.game(task))}">'
        f'<table class="scores"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def watched(row: Row) -> str:
    """The player of a row as the Watch tab knows it; empty if it does not."""
    name = str(row["player"])
    if name.startswith("pocket,"):
        return "pocket"
    return name if name in players.BUILT_IN or (row["link"] and not name.startswith("pocket+")) else ""


def table(rows: Sequence[Row]) -> str:
    """The rows as an HTML table that sorts by its columns."""
    settings = [head.capitalize() for head in HEADS]
    heads = ("Game", "Player", "Rank", "Reward", "Success", "Normalised", "Silent", "Episodes", *settings)
    head = "".join(f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>' for name in heads)
    body = ""
    for row in rows:
        plays, cells = row["plays"], []  # (key to sort by, text); an empty key sorts last
        for score in (row["reward"], row["success"]):
            cells.append((score["mean"] if score and plays else "", _figure(score)))
        cells.append((row["normalised"] if plays else "", number(row["normalised"], 2)))
        cells += [(row["silent"], number(row["silent"], 2)), (row["episodes"], row["episodes"])]
        figures = "".join(f'<td data-value="{"" if key is None else key}">{text}</td>' for key, text in cells)
        values = [escape(row[head]) for head in HEADS]
        words = "".join(f'<td class="word" data-value="{"" if each == NONE else each}">{each}</td>' for each in values)
        rank, player = _place(row, row["player"])
        first = f'<td class="word">{escape(row["task"])}</td><th scope="row">{player}</th>{rank}'
        body += f"<tr>{first}{figures}{words}</tr>"
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Leaderboard"><table class="scores">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _place(row: Row, title: str) -> tuple[str, str]:
    """The cell of a player's places (one, or a range that it shares with others), and the player's name with its link."""
    name, rank = escape(title), row["rank"]
    linked = f'<a href="{escape(row["link"])}">{name}</a>' if row["link"] else name
    player = linked if row["plays"] else f'{linked} <span class="interval">does not play</span>'
    if rank is None:
        return '<td data-value="">–</td>', player
    return f'<td data-value="{rank[0]}">{"–".join(map(str, dict.fromkeys(rank)))}</td>', player


def _figure(score: dict[str, Any] | None) -> str:
    return "–" if score is None else f"{number(score['mean'])} {interval(score)}"
