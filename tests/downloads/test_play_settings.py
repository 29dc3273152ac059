"""The play settings beside an adapter, and the switches of chat templates: plain names with plain values, and few of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgrpo_hub.downloads.inspection import PlaySettings, play_settings_of, read_object
from msgrpo_hub.errors import UserError

BAD: dict[str, tuple[Any, str]] = {
    "an object": (
        {"a": {}},
        "a = '{}' in the msgrpo.json of 'x': expected a text of up to 1000 characters, a number",
    ),
    "an infinite number": ({"a": float("inf")}, "a = 'inf' in the msgrpo.json"),
    "a novel": ({"a": "x" * 1001}, "expected a text of up to 1000 characters"),
    "another template": ({"chat_template": "x"}, "the variable 'chat_template' in the msgrpo.json of 'x' cannot be set"),
    "a name of Python": ({"__class__": 1}, "the variable '__class__'"),
    "too many": (dict.fromkeys(map("a{}".format, range(21)), 1), "21 variables in the msgrpo.json of 'x': expected at most 20"),
}


@pytest.mark.parametrize("case", BAD)
def test_switches_that_are_not_plain_are_refused_in_one_line(case: str) -> None:
    switches, words = BAD[case]
    with pytest.raises(UserError) as caught:
        play_settings_of({"prompt_format": "json", "chat_template_kwargs": switches}, "x")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_are_read_as_they_were_stored() -> None:
    switches = {"enable_thinking": False, "budget": 3, "share": 0.5, "date_string": "1 Jan 2025"}
    stored = PlaySettings(prompt_format="json", chat_template_kwargs=switches)
    assert play_settings_of(json.loads(json.dumps(stored.record())), "x") == stored


@pytest.mark.parametrize("text", ["{", "enable_thinking=false", "[1]", "", "{'enable_thinking': false}", "[" * 100_000])
def test_bad_json_on_the_command_line_gets_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"expected a JSON object such as '\{\"enable_thinking\": false\}'") as caught:
        read_object(text, "chat_template_kwargs", '{"enable_thinking": false}')
    assert "\n" not in str(caught.value)
