"""The bars of a results card: they end where the figures are, game by game, and the picture is valid and runs no code."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from msgrpo_hub.rendering.scores_svg import MOST_BARS, Bar, scores_svg

SVG = "{http://www.w3.org/2000/svg}"
GAMES = {
    "Snake-Standard-v1": [
        Bar(name="planner", mean=5.0, low=4.0, high=6.0),
        Bar(name="lake", mean=-1.0, low=-2.0, high=0.0),
        Bar(name="<once>", mean=2.0, low=None, high=None),
    ]
}


def test_bars_and_intervals_are_to_scale_from_zero() -> None:
    text = scores_svg(GAMES)
    bars = [(float(x), float(width)) for x, width in re.findall(r'class="bar" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)]
    [zero] = map(float, re.findall(r'class="zero" d="M([\d.]+)', text))
    unit = bars[0][1] / 5.0
    assert bars == [
        (zero, pytest.approx(5 * unit)),
        (pytest.approx(zero - unit, abs=0.1), pytest.approx(unit, abs=0.1)),
        (zero, pytest.approx(2 * unit, abs=0.1)),
    ]
    ends = [(float(low), float(high)) for low, high in re.findall(r'class="interval" d="M([\d.]+) \d+H([\d.]+)"', text)]
    assert ends == [
        (pytest.approx(zero + 4 * unit, abs=0.1), pytest.approx(zero + 6 * unit, abs=0.1)),
        (pytest.approx(zero - 2 * unit, abs=0.1), pytest.approx(zero, abs=0.1)),
    ]


def test_it_is_xml_without_script_that_says_what_it_shows() -> None:
    text = scores_svg(GAMES)
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title") == "Mean rewards. Snake-Standard-v1: planner 5.00, lake -1.00, <once> 2.00"
    assert "<script" not in text
    assert "\u22121" in "".join(root.itertext())


def test_of_many_players_the_first_are_drawn_and_the_others_counted() -> None:
    text = scores_svg({"a": [Bar(name=f"p{n}", mean=0.0, low=None, high=None) for n in range(MOST_BARS + 3)], **GAMES})
    assert "and 3 more" in text
    assert f"p{MOST_BARS}<" not in text
    for nothing in ({}, {"a": []}):
        with pytest.raises(ValueError, match="no scores to draw"):
            scores_svg(nothing)
