"""An estimate as text for the terminal."""

from __future__ import annotations

from msgrpo_hub.evaluation.estimate import Estimate
from msgrpo_hub.evaluation.tables import Row, aligned, short
from msgrpo_hub.evaluation.task_sample import TaskEstimate

_HEAD = ("task", "episodes", "calls", "prompt tokens/episode", "reply tokens/episode", "time", "price")


def estimate_table(estimate: Estimate) -> str:
    """The estimate of a player: a line per task, the sums, and what they assume."""
    rows = [_HEAD, *map(_row, estimate.tasks), _sums(estimate.tasks)]
    shown = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"–"}]
    return "\n".join([_title(estimate), aligned(list(zip(*shown, strict=True))), *estimate.assumptions])


def _title(estimate: Estimate) -> str:
    title = short(estimate.player, 60)
    if estimate.weight_bytes is not None:
        title += f"   {_size(estimate.weight_bytes)} of weights in {estimate.dtype}"
        title += "" if estimate.batch_bytes is None else f" + {_size(estimate.batch_bytes)} for a batch"
    return f"{title}   {estimate.calls_at_once} calls at a time"


def _row(row: TaskEstimate) -> Row:
    tokens = [_count(row.prompt_tokens), _count(row.reply_tokens)]
    return [row.task, _count(row.episodes), _count(row.calls), *tokens, _time(row.seconds), _dollars(row.dollars)]


def _sums(tasks: tuple[TaskEstimate, ...]) -> Row:
    """The sums over the tasks; of tokens the sum over all episodes."""
    return [
        "all",
        _count(sum(row.episodes for row in tasks)),
        _count(sum(row.calls for row in tasks)),
        _in_all([_times(row.episodes, row.prompt_tokens) for row in tasks]),
        _in_all([_times(row.episodes, row.reply_tokens) for row in tasks]),
        _time(_sum([row.seconds for row in tasks])),
        _dollars(_sum([row.dollars for row in tasks])),
    ]


def _times(episodes: int, tokens: float | None) -> float | None:
    return None if tokens is None else episodes * tokens


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _in_all(values: list[float | None]) -> str:
    total = _sum(values)
    return "–" if total is None else f"{total:,.0f} in all"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _dollars(value: float | None) -> str:
    return "–" if value is None else f"${value:,.2f}"


def _size(size: float) -> str:
    """A number of bytes as readable text.

    >>> _size(3_400_000), _size(6_200_000_000)
    ('3.4 MB', '6.2 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _time(seconds: float | None) -> str:
    """Seconds as readable text.

    >>> _time(0.4), _time(50), _time(200), _time(9000), _time(None)
    ('under 1 s', '50 s', '3 min', '2.5 h', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return "under 1 s" if seconds else "0 s"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
