"""The leaderboard as HTML: a block per game, with bars and intervals, and one table of all figures that sorts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any

import names
import opening
import players
from figures import bar, number

from msgrpo_hub.evaluation.acting import HEADS, NONE

Row = dict[str, Any]


def leaderboard_page(rows: Sequence[Row]) -> str:
    """Every game in a block of its own, and below them all figures."""
    if not rows:
        return '<p class="verdict">No results for this game: choose one from the list.</p>'
    order = list(names.GAMES)
    games = {task: list(of) for task, of in groupby(rows, key=lambda row: row["task"])}
    shown = sorted(games, key=lambda task: (task not in order, order.index(task) if task in order else 0, task))
    blocks = "".join(_block(task, games[task]) for task in shown)
    everything = f"<summary>All figures in one table</summary>{table(rows)}"
    return f'<div class="games">{blocks}</div><details class="all">{everything}</details>'


def _block(task: str, rows: Iterable[Row]) -> str:
    rows = list(rows)
    scores = [row["reward"] for row in rows if row["reward"]]
    ends = [0.0, *(score[end] for score in scores for end in ("mean", "low", "high") if score[end] is not None)]
    body = "".join(
        f'<tr{_class(row)}>{_rank(row["rank"])}<th scope="row">{_player(row, _title(row))}{_trained(row)}</th>'
        f'<td class="bar">{bar(row["reward"], min(ends), max(ends))}{_figure(row["reward"])}</td>{_share(row["success"])}'
        f"<td>{_replay(row)}</td></tr>"
        for row in rows
    )
    heads = (
        "Rank",
        "Player",
        "Reward",
        "Success",
        '<span class="unseen">Replay</span>',
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    name = f"{escape(names.game(task))} <small>{escape(task)}</small>"
    return (
        f'<section><h2>{name}</h2><div class="scroll" tabindex="0" role="region" aria-label="{escape(names.game(task))}">'
        f'<table class="scores"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _class(row: Row) -> str:
    return ' class="trained"' if _is_trained(row) else ""


def _is_trained(row: Row) -> bool:
    """Whether a player is a built-in adapter."""
    return row["player"] in players.ADAPTERS


def _trained(row: Row) -> str:
    return ' <span class="badge">trained here</span>' if _is_trained(row) else ""


def _share(score: dict[str, Any] | None) -> str:
    return f"<td>{opening.percent(score['mean'])}</td>" if score else "<td>–</td>"


def watched(row: Row) -> str:
    """The player of a row as the Watch tab knows it; empty if it does not."""
    name = str(row["player"])
    if name.startswith("pocket,"):
        return "pocket"
    return name if name in players.BUILT_IN or (row["link"] and not name.startswith("pocket+")) else ""


def _replay(row: Row) -> str:
    player = watched(row)
    address = escape(opening.link(row["task"], 0, player))
    return f'<a href="{address}">▶<span class="unseen"> replay of {escape(row["player"])}</span></a>' if player else ""


def table(rows: Sequence[Row]) -> str:
    """The rows as an HTML table that sorts by its columns."""
    settings = [head.capitalize() for head in HEADS]
    heads = ("Game", "Player", "Rank", "Reward", "Success", "Normalised", "Silent", "Episodes", *settings)
    head = "".join(f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>' for name in heads)
    body = "".join(
        f'<tr><td class="word">{escape(row["task"])}</td><th scope="row">{_player(row)}</th>{_rank(row["rank"])}'
        f"{_score(row, 'reward')}{_score(row, 'success')}{_cell(row['normalised'], 2, row['plays'])}{_cell(row['silent'], 2)}"
        f'<td data-value="{row["episodes"]}">{row["episodes"]}</td>{"".join(_setting(row[head]) for head in HEADS)}</tr>'
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Leaderboard"><table class="scores">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _title(row: Row) -> str:
    """The name of a player as visitors read it elsewhere."""
    name = watched(row)
    return names.player(name) if name in players.BUILT_IN else str(row["player"])


def _player(row: dict[str, Any], title: str = "") -> str:
    name = escape(title or row["player"])
    linked = f'<a href="{escape(row["link"])}">{name}</a>' if row["link"] else name
    return linked if row["plays"] else f'{linked} <span class="interval">does not play</span>'


def _rank(rank: list[int] | None) -> str:
    """The places that are open to a player: one, or a range that it shares with others."""
    if rank is None:
        return '<td data-value="">–</td>'
    return f'<td data-value="{rank[0]}">{rank[0] if rank[0] == rank[1] else f"{rank[0]}–{rank[1]}"}</td>'


def _setting(value: str) -> str:
    return f'<td class="word" data-value="{"" if value == NONE else escape(value)}">{escape(value)}</td>'


def _score(row: dict[str, Any], name: str) -> str:
    """A score with its interval. That of a player that does not play sorts last."""
    score = row[name]
    if score is None:
        return '<td data-value="">–</td>'
    key = score["mean"] if row["plays"] else ""
    return f'<td data-value="{key}">{_figure(score)}</td>'


def _figure(score: dict[str, Any] | None) -> str:
    if score is None:
        return "–"
    interval = f"[{number(score['low'])}, {number(score['high'])}]" if score["low"] is not None else "n < 30"
    return f'{number(score["mean"])} <span class="interval">{escape(interval)}</span>'


def _cell(value: float | None, decimals: int, ranked: bool = True) -> str:
    return f'<td data-value="{"" if value is None or not ranked else value}">{number(value, decimals)}</td>'
