"""The plots of a report as numbers: positions of marks and bars in percent of a plot's width. The page draws them as SVG.

Percentages keep the letters readable on a phone, where a scaled picture would shrink them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.rendering.endings import label

ENDINGS = ("success", "survived", "out of turns", "lost", "not played")
REPLIES = ("ok", "illegal", "unparsed", "truncated")

_FEWEST_TICKS = 4


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A score on an axis: its dot, and the ends of its interval if it has one."""

    at: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Forest:
    """Rewards with their intervals on one axis, one row per player."""

    ticks: list[tuple[float, str]]
    references: list[tuple[float, str]]
    rows: list[tuple[str, Mark | None, Mark | None]]
    """Player, reward, luck-adjusted reward."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of a stacked bar."""

    kind: str
    start: float
    width: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """The turns of a player's first mistakes."""

    columns: list[tuple[float, float, str]]
    """Left edge and height in percent, and the label, for each turn."""
    width: float
    without: str
    """The share of episodes without a mistake."""


def forest(results: Sequence[Result], names: Sequence[str]) -> Forest:
    """The intervals of one task's players as a plot."""
    figures = [(result.summary["reward"], result.summary["luck_adjusted"]) for result in results]
    references = {name: value for result in results for name, value in result.summary["references"].items()}
    ends = [
        value
        for pair in figures
        for figure in pair
        if figure
        for key in ("mean", "low", "high")
        if (value := figure[key]) is not None
    ]
    low, high, step = _scale([*ends, *references.values()])

    def at(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    def mark(figure: Mapping[str, float | None] | None) -> Mark | None:
        if figure is None:
            return None
        mean, lower, upper = (None if figure[key] is None else float(figure[key] or 0) for key in ("mean", "low", "high"))
        text = number(mean) + (f" [{number(lower)}, {number(upper)}]" if lower is not None else " (under 30 boards)")
        return Mark(
            at=at(mean or 0), low=None if lower is None else at(lower), high=None if upper is None else at(upper), text=text
        )

    lowest_first = sorted((value, name) for name, value in references.items())
    places = [low + step * index for index in range(round((high - low) / step) + 1)]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return Forest(
        ticks=[(at(place), number(place, decimals)) for place in places],
        references=[(at(value), f"{name} {number(value, 2)}") for value, name in lowest_first],
        rows=[(name, mark(reward), mark(adjusted)) for name, (reward, adjusted) in zip(names, figures, strict=True)],
    )


def _scale(values: Sequence[float]) -> tuple[float, float, float]:
    """Round ends of an axis around some values, and a round distance between its ticks.

    >>> _scale([0.02, 0.97]), _scale([-5.3, 4.9]), _scale([1.0])
    ((0.0, 1.0, 0.2), (-6.0, 6.0, 2.0), (0.5, 1.5, 0.2))
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-9:
        return low - 0.5, high + 0.5, 0.2
    size = 10.0 ** math.floor(math.log10((high - low) / _FEWEST_TICKS))
    step = max(s * size for s in (1, 2, 5, 10) if s * size <= (high - low) / _FEWEST_TICKS * (1 + 1e-9))
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step


def number(value: float | None, decimals: int = 3) -> str:
    """A number with a true minus sign, and no negative zero.

    >>> number(-1.25), number(-0.0001), number(None)
    ('−1.250', '0.000', '–')
    """
    if value is None:
        return "–"
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if not float(text) else text.replace("-", "−")


def ending(episode: Episode) -> str:
    """How an episode ended, as a short label."""
    return label(success=episode.success, terminated=episode.terminated)


def endings(result: Result) -> list[Segment]:
    """How a player's episodes ended. Episodes without an answer from the server are "not played"."""
    missing = {"not played": int(result.summary["failed"])}
    return _stacked(ENDINGS, Counter(map(ending, result.episodes)) | Counter(missing))


def replies(result: Result) -> list[Segment]:
    """A player's replies by status."""
    bad = {
        "illegal": sum(score.illegal for score in result.scores),
        "unparsed": sum(score.unreadable for score in result.scores),
        "truncated": sum(score.truncated_replies for score in result.scores),
    }
    return _stacked(REPLIES, {"ok": sum(score.steps for score in result.scores) - sum(bad.values())} | bad)


def _stacked(kinds: Iterable[str], counts: Mapping[str, int]) -> list[Segment]:
    total, start, segments = sum(counts.values()), 0.0, []
    for kind in kinds:
        if count := counts.get(kind, 0):
            width = 100 * count / total
            segments.append(Segment(kind=kind, start=round(start, 2), width=round(width, 2), count=count))
            start += width
    return segments


def first_mistakes(results: Sequence[Result], horizon: int) -> list[Mistakes | None]:
    """When each player made its first mistake, on one scale. None for a game that is not solved, or without episodes."""
    turns = [[s.first_mistake for s in result.scores if s.first_mistake is not None] for result in results]
    shares = [[made.count(turn) / len(made) if made else 0.0 for turn in range(horizon)] for made in turns]
    tallest = max((share for row in shares for share in row), default=0.0) or 1.0
    return [
        Mistakes(
            columns=[
                (round(100 * turn / horizon, 2), round(100 * share / tallest, 1), f"turn {turn + 1}: {number(100 * share, 0)} %")
                for turn, share in enumerate(row)
            ],
            width=round(100 / horizon, 3),
            without=f"{number(100 * made.count(-1) / len(made), 0)} %",
        )
        if made
        else None
        for made, row in zip(turns, shares, strict=True)
    ]


def legend(bars: Iterable[Sequence[Segment]], kinds: Iterable[str]) -> list[str]:
    """The kinds that occur in the bars, in the order of `kinds`."""
    seen: set[Any] = {segment.kind for bar in bars for segment in bar}
    return [kind for kind in kinds if kind in seen]
