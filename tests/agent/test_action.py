"""The action parser: what counts as an action, what does not, and what no text can make it do."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.action import parse_action

ACTIONS = ("Left", "Down", "Right", "Up")
words = st.text(st.characters(exclude_characters="<>"))
actions = st.sampled_from(ACTIONS)
blanks = st.text(" \t\n\r", max_size=4)
cases = st.sampled_from([str, str.lower, str.upper, str.swapcase])


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>Left</action>", "Left"),
        ("<action>\n  lEfT \n</action>", "Left"),
        ("<ACTION>Up</ACTION>", "Up"),
        ("<think>Up?</think><action>Down</action>", "Down"),
        ("<think>Up?</think>\nI go down.\n<action>Down</action>\nDone.", "Down"),
        ("<action>Left</action><action>Right</action>", "Left"),
        ("<think><action>Left</action></think><action>Right</action>", "Right"),
        ("thoughts without an opening tag <action>Left</action></think><action>Right</action>", "Right"),
        ("<think>Left</think>", None),
        ("<think><action>Left</action></think>", None),
        ("<think>I might go <action>Left</action>", None),
        ("<think>", None),
        ("", None),
        ("Left", None),
        ("<action></action>", None),
        ("<action>Left", None),
        ("Left</action>", None),
        ("<action>Left.</action>", None),
        ("<action>go Left</action>", None),
        ("<action>Left, Right</action>", None),
        ("<action>Jump</action><action>Left</action>", None),
        ("<action>one available action</action>", None),
    ],
)
def test_hand_made_replies(text: str, action: str | None) -> None:
    assert parse_action(text, ACTIONS) == action


@given(thought=words, between=words, action=actions, case=cases, before=blanks, after=blanks, rest=words)
def test_case_and_blanks_and_talk_around_it_do_not_matter(
    thought: str, between: str, action: str, case: type[str], before: str, after: str, rest: str
) -> None:
    reply = f"<think>{thought}</think>{between}<action>{before}{case(action)}{after}</action>{rest}"
    assert parse_action(reply, ACTIONS) == action


@given(first=actions, second=actions)
def test_the_first_action_counts(first: str, second: str) -> None:
    assert parse_action(f"<action>{first}</action><action>{second}</action>", ACTIONS) == first


@given(inside=actions, outside=actions)
def test_an_action_inside_the_thoughts_is_only_a_thought(inside: str, outside: str) -> None:
    thoughts = f"<think>perhaps <action>{inside}</action>"
    assert parse_action(thoughts, ACTIONS) is None
    assert parse_action(f"{thoughts}</think><action>{outside}</action>", ACTIONS) == outside


tags = st.sampled_from(["<think>", "</think>", "<action>", "</action>", *ACTIONS, "left", " ", "\n", "Jump"])


@given(st.one_of(st.text(), st.lists(tags, max_size=12).map("".join)))
def test_whatever_the_text_the_answer_is_an_available_action_that_stands_in_tags_or_none(text: str) -> None:
    action = parse_action(text, ACTIONS)
    assert action is None or action in ACTIONS
    if action is not None:
        assert re.search(rf"<action>\s*{action}\s*</action>", text, re.IGNORECASE)


@given(st.text(st.characters(exclude_characters="<")))
def test_without_tags_nothing_is_read(text: str) -> None:
    assert parse_action(text, ACTIONS) is None


@given(available=st.lists(actions, unique=True), action=actions)
def test_only_available_actions_are_read(available: list[str], action: str) -> None:
    assert parse_action(f"<action>{action}</action>", available) == (action if action in available else None)


@given(st.lists(tags, max_size=12).map("".join), words)
def test_what_follows_the_action_changes_nothing(reply: str, more: str) -> None:
    action = parse_action(reply, ACTIONS)
    if action is not None:
        assert parse_action(reply + more, ACTIONS) == action


def test_a_megabyte_of_beginnings_is_read_at_once() -> None:
    began = time.process_time()
    assert parse_action("<action>" * 125_000, ["Left"]) is None
    assert parse_action("<action>" * 125_000 + "</action>", ["Left"]) is None
    assert time.process_time() - began < 1  # in quadratic time it takes minutes
