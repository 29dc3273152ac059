"""The learning curve of a card: its points are the run's figures, and it is valid, runs no code and has a title."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from msgrpo_hub.rendering.learning_svg import learning_svg

SVG = "{http://www.w3.org/2000/svg}"
METRICS = [{"update": float(n), "reward": n / 10, **({"validation_reward": n / 10} if n % 5 == 0 else {})} for n in range(1, 11)]


def ys(text: str) -> tuple[list[float], list[float]]:
    """The heights of the mean line and of the validation dots."""
    line = re.findall(r'class="mean" d="M(.*?)"', text)[0]
    dots = re.findall(r'class="dot" cx="[\d.]+" cy="([\d.]+)"', text)
    return [float(pair.split()[1]) for pair in line.split("L")], [float(dot) for dot in dots[1:]]  # the first is the legend's


def test_equal_rewards_are_at_equal_heights_and_more_is_higher() -> None:
    line, dots = ys(learning_svg(METRICS, {"base": 0.1, "optimal": 1.0}))
    assert dots == [line[4], line[9]]
    assert line == sorted(line, reverse=True)
    marks = [
        float(y) for y in re.findall(r'class="mark" d="M\d+ ([\d.]+)H', learning_svg(METRICS, {"base": 0.1, "optimal": 1.0}))
    ]
    assert marks == [line[0], line[9]]


def test_it_is_xml_without_script_that_says_what_it_shows() -> None:
    text = learning_svg(METRICS, {"<base>": -0.25})
    root = ElementTree.fromstring(text)
    told = root.findtext(f"{SVG}title")
    assert told == "Mean reward over 10 updates, from 0.10 to 1.00; validation ends at 1.00; <base> -0.25"
    assert "<script" not in text
    assert "<base> \u22120.25" in "".join(root.itertext())


def test_no_zero_is_negative_and_an_axis_of_one_update_has_one_number() -> None:
    root = ElementTree.fromstring(learning_svg([{"update": 1.0, "reward": -0.001}], {"base": -0.004}))
    said = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert "base 0.00" in said
    assert [words for words in said if "update" in words] == ["update 1"]


def test_one_update_of_a_constant_reward_is_drawn_and_none_is_refused() -> None:
    ElementTree.fromstring(learning_svg([{"update": 1.0, "reward": 0.0}], {}))
    with pytest.raises(ValueError, match="no updates"):
        learning_svg([], {})
