"""The learning curve of a run as one SVG for a page: reward over the updates, beside what it is measured against.

It follows the reader's light or dark theme, and on a phone its text is larger. `curves.png` has everything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from msgrpo_hub.rendering.curves import Metrics, rolling_mean

_WIDTH, _HEIGHT = 700, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 26, 92, 58
"""Margins of the plot inside the picture."""

_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:#59636e;font-size:17px}
.card{fill:#fff;stroke:#d1d9e0}.title{fill:#1f2328;font-weight:700;font-size:21px}.end{text-anchor:end}.middle{text-anchor:middle}
.tick{stroke:#e7ebef}.mark{stroke:#59636e;stroke-dasharray:6 5;stroke-width:1.5px}
.name{fill:#1f2328;paint-order:stroke;stroke:#fff;stroke-width:6px;stroke-linejoin:round}
.raw,.mean{fill:none;stroke:#0969da;stroke-linejoin:round}.raw{opacity:.3;stroke-width:1.5px}.mean{stroke-width:3px}
.dot{fill:#bc4c00;stroke:#fff;stroke-width:2px}.line{fill:#0969da}
@media (prefers-color-scheme:dark){text{fill:#9198a1}.card{fill:#0d1117;stroke:#3d444d}.title,.name{fill:#f0f6fc}
.tick{stroke:#262c36}.mark{stroke:#9198a1}.name{stroke:#0d1117}.raw,.mean{stroke:#4493f8}.line{fill:#4493f8}.dot{fill:#f0883e;stroke:#0d1117}}
@media (max-width:520px){text{font-size:24px}.title{font-size:26px}}
"""


def learning_svg(metrics: Metrics, marks: Mapping[str, float]) -> str:
    """A self-contained SVG of a run's mean reward: training as a rolling mean, and each validation.

    Args:
        metrics: one mapping per update, as in `metrics.jsonl`.
        marks: name → mean reward of the players it is measured against, such as its base.

    Raises:
        ValueError: for metrics without an update.
    """
    if not metrics:
        raise ValueError("no updates to draw: metrics is empty")
    played = [line for line in metrics if "reward" in line]  # not those that were taught
    updates, rewards = [float(line["update"]) for line in played], [float(line["reward"]) for line in played]
    validated = [(float(m["update"]), float(m["validation_reward"])) for m in metrics if "validation_reward" in m]
    smooth = [float(value) for value in rolling_mean(np.array(rewards))]
    low, high = _span([*rewards, *(value for _, value in validated), *marks.values()])
    last = float(metrics[-1]["update"])
    plot = _Plot(last, low, high)
    marked = ", ".join(f"{name} {value:z.2f}" for name, value in marks.items())
    told = [f"from {smooth[0]:z.2f} to {smooth[-1]:z.2f}"] if smooth else []
    told += [f"validation ends at {validated[-1][1]:z.2f}"] if validated else []
    ends = "; ".join([*told, marked])
    drawn = {"raw": rewards, "mean": smooth} if played else {}
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(f'Mean reward over {len(metrics)} updates, {ends}')}</title>",
            f'<rect class="card" x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="12"/>',
            '<text class="title" x="22" y="40">Reward while it learns</text>',
            '<rect class="line" x="22" y="59" width="26" height="4" rx="2"/><text x="56" y="68">training</text>',
            '<circle class="dot" cx="170" cy="61" r="7"/><text x="184" y="68">validation</text>' if validated else "",
            *(plot.tick(value) for value in _ticks(low, high)),
            *(plot.update(value, anchor) for value, anchor in ((last // 2, "middle"), (last, "end")) if value),
            *(f'<path class="{name}" d="{plot.path(updates, line)}"/>' for name, line in drawn.items()),
            *(plot.mark(name, value) for name, value in marks.items()),
            *(f'<circle class="dot" cx="{plot.x(update):.1f}" cy="{plot.y(value):.1f}" r="7"/>' for update, value in validated),
            f"<style>{_STYLE}</style>",
            "</svg>\n",
        ]
    )


class _Plot:
    """Places values in the picture."""

    def __init__(self, last: float, low: float, high: float) -> None:
        self.last, self.low, self.high = last, low, high

    def x(self, update: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * update / self.last

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - self.low) / (self.high - self.low)

    def path(self, updates: Sequence[float], values: Sequence[float]) -> str:
        return "M" + "L".join(f"{self.x(update):.1f} {self.y(value):.1f}" for update, value in zip(updates, values, strict=True))

    def tick(self, value: float) -> str:
        y = f"{self.y(value):.1f}"
        line = f'<path class="tick" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
        return f'{line}<text class="end" x="{_LEFT - 10}" y="{self.y(value) + 6:.1f}">{signed(value)}</text>'

    def update(self, value: float, anchor: str) -> str:
        words = f"update {value:.0f}" if anchor == "end" else f"{value:.0f}"
        return f'<text class="{anchor}" x="{self.x(value):.1f}" y="{_HEIGHT - 20}">{words}</text>'

    def mark(self, name: str, value: float) -> str:
        y = self.y(value)
        line = f'<path class="mark" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        words = escape(f"{name} {value:z.2f}".replace("-", "−"))
        return f'{line}<text class="name end" x="{_WIDTH - _RIGHT - 4}" y="{y - 9:.1f}">{words}</text>'


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of the plot: that of the values, with room above and below."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """At most five round values inside a range.

    >>> _ticks(-0.06, 1.06), _ticks(-1.3, 7.5)
    ([0.0, 0.5, 1.0], [0.0, 2.0, 4.0, 6.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if (high - low) / (factor * power) <= 5)
    return [round(index * step, 6) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def signed(value: float) -> str:
    """A round value, with a minus sign.

    >>> signed(-0.5), signed(2.0), signed(-0.0)
    ('−0.5', '2', '0')
    """
    return f"{value:zg}".replace("-", "−")
