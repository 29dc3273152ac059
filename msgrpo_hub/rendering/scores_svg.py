"""Scores of players as one SVG for a page: a bar with its interval for each player, game by game.

It follows the reader's light or dark theme, and on a phone its text is larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.rendering.learning_svg import signed

_WIDTH, _LEFT, _RIGHT = 700, 236, 96
"""Of the picture; and its margins for the names and the figures."""

_ROW, _HEADING, _FOOT = 40, 64, 20
_NAME_CHARACTERS, _PHONE_CHARACTERS = 24, 15

MOST_BARS = 8
"""Players of a game that are drawn; the others are counted."""

_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:#1f2328;font-size:17px}
.card{fill:#fff;stroke:#d1d9e0}.title{font-weight:700;font-size:19px}.end{text-anchor:end;font-variant-numeric:tabular-nums}
.more{fill:#59636e}.bar{fill:#0969da;opacity:.35}.interval{stroke:#0969da;stroke-width:3px;stroke-linecap:round}.zero{stroke:#d1d9e0}
.phone{display:none}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.card{fill:#0d1117;stroke:#3d444d}.more{fill:#9198a1}.bar{fill:#4493f8}
.interval{stroke:#4493f8}.zero{stroke:#3d444d}}
@media (max-width:520px){text{font-size:24px}.title{font-size:26px}.desk{display:none}.phone{display:inline}}
"""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The mean reward of a player."""

    name: str
    mean: float
    low: float | None
    """Ends of the 95 % interval; None without one."""
    high: float | None


def scores_svg(games: Mapping[str, Sequence[Bar]]) -> str:
    """A self-contained SVG of mean rewards with their intervals.

    Args:
        games: id → its players, best first; each game has a scale of its own, which holds 0.

    Raises:
        ValueError: for no games, or a game without players.
    """
    if not games or not all(games.values()):
        raise ValueError("no scores to draw: expected games, each with players")
    parts, top = [], 0
    for game, bars in games.items():
        parts.append(f'<g transform="translate(0 {top})">{_block(game, bars)}</g>')
        top += _HEADING + _ROW * (min(len(bars), MOST_BARS) + (len(bars) > MOST_BARS))
    height = top + _FOOT
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    told = "; ".join(
        f"{game}: {', '.join(f'{bar.name} {bar.mean:z.2f}' for bar in bars[:MOST_BARS])}" for game, bars in games.items()
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(f'Mean rewards. {told}')}</title>",
            f'<rect class="card" x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="12"/>',
            *parts,
            f"<style>{_STYLE}</style>",
            "</svg>\n",
        ]
    )


def _block(game: str, bars: Sequence[Bar]) -> str:
    shown = bars[:MOST_BARS]
    ends = [0.0, *(end for bar in shown for end in (bar.mean, bar.low, bar.high) if end is not None)]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / ((high - low) or 1.0)

    def row(bar: Bar, y: int) -> str:
        left, right = sorted((x(0.0), x(bar.mean)))
        interval = ""
        if bar.low is not None and bar.high is not None:
            interval = f'<path class="interval" d="M{x(bar.low):.1f} {y}H{x(bar.high):.1f}"/>'
        return (
            f'<rect class="bar" x="{left:.1f}" y="{y - 12}" width="{right - left:.1f}" height="24" rx="3"/>{interval}'
            f'<text class="desk" x="22" y="{y + 6}">{escape(short(bar.name, _NAME_CHARACTERS))}</text>'
            f'<text class="phone" x="22" y="{y + 8}">{escape(short(bar.name, _PHONE_CHARACTERS))}</text>'
            f'<text class="end" x="{_WIDTH - 22}" y="{y + 7}">{signed(round(bar.mean, 2))}</text>'
        )

    rows = [row(bar, _HEADING + _ROW * number + _ROW // 2) for number, bar in enumerate(shown)]
    bottom = _HEADING + _ROW * len(shown)
    rest = len(bars) - len(shown)
    more = f'<text class="more" x="22" y="{bottom + 26}">and {rest} more</text>' if rest else ""
    zero = f'<path class="zero" d="M{x(0.0):.1f} {_HEADING}V{bottom}"/>'
    return f'<text class="title" x="22" y="42">{escape(game)}</text>{zero}{"".join(rows)}{more}'
