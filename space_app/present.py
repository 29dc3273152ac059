"""Scores as HTML: tables with intervals as numbers and as small drawings. Visitors' text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import names
from compare import FEWEST_PAIRS

from msgrpo_hub.rendering.replay import number as number

BUNDLED = '<p class="count">This result came with the Space. <span class="anew"><b>{button}</b> computes it anew.</span></p>'
"""Below a result of the bundle; the button computes it."""


def comparison(found: dict[str, Any]) -> str:
    """The scores of two players, and the verdict."""
    equal = all(found[side]["reward"] == found[side]["success"] for side in ("a", "b"))  # then one of them is enough
    rows = "".join(_row(found[side], found, equal) for side in ("a", "b"))
    heads = '<th scope="col">Reward = success</th>' if equal else '<th scope="col">Reward</th><th scope="col">Success</th>'
    return (
        f"{progress(found)}"
        '<table class="scores"><caption class="unseen">Scores of both players</caption>'
        f'<thead><tr><th scope="col">Player</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        f'<p class="verdict">{_difference(found)}</p>'
    )


def _difference(found: dict[str, Any]) -> str:
    difference = found["difference"]
    if difference is None:
        return f"Under {FEWEST_PAIRS} episodes, a difference says too little to be shown."
    p = "p &lt; 0.0001" if difference["p"] < 0.0001 else f"p = {number(difference['p'], 4)}"
    shown = [escape(names.player(found[side]["player"])) for side in ("a", "b")]
    sign = "+" if difference["mean"] > 0 else ""
    words = {
        "better": f"B, {shown[1]}, is better than A, {shown[0]}.",
        "worse": f"B, {shown[1]}, is worse than A, {shown[0]}.",
        "inconclusive": "Inconclusive, which does not mean equal"
        + (
            f": this many episodes would, 8 times in 10, find a difference of {number(abs(difference['detectable']), 2)}."
            if difference["detectable"]
            else "."
        ),
    }[difference["verdict"]]
    return f"<b>{words}</b> Difference in reward {sign}{number(difference['mean'])} {interval(difference)}, {p}."


def _row(figures: dict[str, Any], found: dict[str, Any], equal: bool) -> str:
    rewards = [found[side]["reward"] for side in ("a", "b")]
    ends = [0.0, *(value for reward in rewards for value in reward.values() if value is not None)]
    axes = [("reward", min(ends), max(ends)), ("success", 0.0, 1.0)][equal:]
    cells = [f"<td>{number((of := figures[key])['mean'])} {interval(of)}{drawn(of, low, high)}</td>" for key, low, high in axes]
    return f'<tr><th scope="row">{escape(names.player(figures["player"]))}</th>{"".join(cells)}</tr>'


def progress(found: dict[str, Any]) -> str:
    done, wanted = found["episodes"], found["wanted"]
    word = f"{done} of {wanted} episodes" if done < wanted else f"{done} episode{'s' if done > 1 else ''}"
    return (
        f'<div class="progress" role="progressbar" aria-label="Episodes played" aria-valuemin="0" aria-valuemax="{wanted}" '
        f'aria-valuenow="{done}"><span style="width:{100 * done / wanted:.1f}%"></span></div><p class="count">{word}</p>'
    )


def judgements(answers: Mapping[str, dict[str, Any]]) -> str:
    """The verdicts on one agent or two with changed rules: player → answer."""
    if len(answers) == 1:
        return "".join(map(judgement, answers.values()))
    titled = (f"<h3>{escape(names.player(name))}</h3>{judgement(answer)}" for name, answer in answers.items())
    return f'<div class="judged">{"".join(f"<section>{each}</section>" for each in titled)}</div>'


def judgement(found: dict[str, Any]) -> str:
    """The verdict on an agent with changed rules, and the figures behind it."""
    titles = (("own", "as written"), ("control", "with a neutral sentence"), ("changed", "in your words"))
    rows = "".join(
        f'<tr><th scope="row">{title}</th><td>{number(found[side]["per_game"], 2)}</td>'
        f"<td>{100 * found[side]['unreadable']:.0f} %</td></tr>"
        for side, title in titles
    )
    compared = (found["difference"], found["change"], found["disturbance"])
    signed = [f"{'+' if each['mean'] > 0 else ''}{number(each['mean'], 2)} {interval(each)}" for each in compared]
    return (
        f"{progress(found)}"
        f'<p class="verdict"><b class="word">{escape(found["verdict"].capitalize())}.</b> {escape(found["sentence"])}</p>'
        '<table class="scores"><caption class="unseen">What it did</caption>'
        '<thead><tr><th scope="col">The agent, on the same starts</th>'
        '<th scope="col">Apples or goals per game</th><th scope="col">Unparsed replies</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f'<p class="count">Your words against neutral sentences: {signed[0]}; against the game as written: {signed[1]}. '
        f"Neutral sentences against the game as written: {signed[2]}.</p>"
    )


# ---- figures


def interval(score: dict[str, Any]) -> str:
    text = "no interval under 30" if score["low"] is None else f"[{number(score['low'])}, {number(score['high'])}]"
    return f'<span class="interval">{text}</span>'


def drawn(score: dict[str, Any], low: float, high: float, *, bar: bool = False) -> str:
    """A mean with its interval on a scale from `low` to `high`: as a dot with the ends of the scale, or as a bar from 0."""
    span = (high - low) or 1.0
    values = {"zero": 0.0, **{name: score[name] for name in ("mean", "low", "high") if score[name] is not None}}
    at = {name: 100 * (value - low) / span for name, value in values.items()}
    line = f'<line x1="{at["low"]:.2f}%" x2="{at["high"]:.2f}%" y1="8" y2="8"/>' if "low" in at else ""
    if bar:
        left, width = min(at["zero"], at["mean"]), abs(at["mean"] - at["zero"])
        axis = f'<line class="axis" x1="{at["zero"]:.2f}%" x2="{at["zero"]:.2f}%" y1="0" y2="16"/>'
        inside = f'<rect x="{left:.2f}%" width="{width:.2f}%" y="3" height="10" rx="2"/>{line}{axis}'
        return f'<svg class="whisker bars" aria-hidden="true" height="16">{inside}</svg>'
    axis, dot = '<line class="axis" x1="0" x2="100%" y1="8" y2="8"/>', f'<circle cx="{at["mean"]:.2f}%" cy="8" r="5"/>'
    return (
        f'<svg class="whisker" aria-hidden="true" height="16">{axis}{line}{dot}</svg>'
        f'<span class="ends" aria-hidden="true"><span>{number(low, 2)}</span><span>{number(high, 2)}</span></span>'
    )
