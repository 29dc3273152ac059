"""Figures as text and as small drawings: numbers, intervals, bars."""

from __future__ import annotations

from typing import Any

from msgrpo_hub.rendering.report_plots import number as number


def interval(score: dict[str, Any]) -> str:
    text = "no interval under 30" if score["low"] is None else f"[{number(score['low'])}, {number(score['high'])}]"
    return f'<span class="interval">{text}</span>'


def whisker(score: dict[str, Any], low: float, high: float) -> str:
    """A mean with its interval, drawn on a scale from `low` to `high`."""
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{100 * (value - low) / span:.2f}%"

    line = "" if score["low"] is None else f'<line x1="{at(score["low"])}" x2="{at(score["high"])}" y1="8" y2="8"/>'
    axis = '<line class="axis" x1="0" x2="100%" y1="8" y2="8"/>'
    return (
        f'<svg class="whisker" aria-hidden="true" height="16">{axis}{line}<circle cx="{at(score["mean"])}" cy="8" r="5"/></svg>'
        f'<span class="ends" aria-hidden="true"><span>{number(low, 2)}</span><span>{number(high, 2)}</span></span>'
    )


def bar(score: dict[str, Any] | None, low: float, high: float) -> str:
    """A mean as a bar from 0, with its interval, on a scale from `low` to `high`."""
    if score is None:
        return ""
    span = (high - low) or 1.0
    zero, mean = (100 * (value - low) / span for value in (0.0, score["mean"]))
    drawn = f'<rect x="{min(zero, mean):.2f}%" width="{abs(mean - zero):.2f}%" y="3" height="10" rx="2"/>'
    line = ""
    if score["low"] is not None:
        ends = (f"{100 * (score[end] - low) / span:.2f}%" for end in ("low", "high"))
        line = '<line x1="{}" x2="{}" y1="8" y2="8"/>'.format(*ends)
    axis = f'<line class="axis" x1="{zero:.2f}%" x2="{zero:.2f}%" y1="0" y2="16"/>'
    return f'<svg class="whisker bars" aria-hidden="true" height="16">{drawn}{line}{axis}</svg>'
