"""Reading replies: a table of shapes of real replies, and properties that hold for every text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.action import OPENED, parse_action, split_thoughts

ACTIONS = ("Left", "Down", "Right", "Up")
words = st.text(st.characters(exclude_characters="<>[]|▷"))
actions = st.sampled_from(ACTIONS)
blanks = st.text(" \t\n\r", max_size=4)
cases = st.sampled_from([str, str.lower, str.upper, str.swapcase])

READ: dict[str | None, list[str]] = {
    "Left": [
        *("<action>Left</action>", "<action>\n  lEfT \n</action>", "<action>Left</action><action>Right</action>"),
        *("<action>Left.</action>", '<action>"Left"</action>', "<action><Left></action>", "<Left>Left</Left>", "Left"),
        *("<action>Left", "Left</action>"),  # a server that stops at a tag leaves it out
        *("<think>a</think><action>Left</action><think>b</think><action>Right</action>", "<Think>a</THINK><action>Left</action>"),
        *("a</think><action>Left</action><think>b</think><action>Right</action>", "<think>a</think><think>b</think>Left"),
        *("<think>a</think><action>Left</action><think>and then", "<action>Left</action><think>then <action>Right</action>"),
        *("<think>I must write <think> first.</think><action>Left</action>", "<think>a</think></think><action>Left</action>"),
    ],
    "Down": [
        *(
            "I go down.\n<action>Down</action>\nDone.",
            "```xml\n<action>Down</action>\n```",
            "Down.",
            '"Down"',
            "**Down**",
            "`Down`",
        ),
        *("- Down", "<Down>", "<Down/>", "<answer>Down</answer>", "<|START_RESPONSE|>Down<|END_RESPONSE|>"),
        *("<think>Up?</think><action>Down</action>", "<think>Up?</think>Down"),
    ],
    "Right": [
        *("  right\n", "Right!", "<think><action>Left</action></think><action>Right</action>"),
        *(
            "perhaps <action>Left</action></think><action>Right</action>",
            "perhaps left</think>\n\nRight.",
        ),  # opened by the prompt
    ],
    "Up": ["<ACTION>Up</ACTION>"],
    None: [
        *("<action></action>", "<action>go Left</action>", "<action>Left, Right</action>", "<action>Left?</action>"),
        *("<action>Jump</action><action>Left</action>", "<action>one available action</action>", "", "Up?", "I go Left."),
        *("Go up and Down.", "Left, Right", "<up>Down</up>", "<Left>one available action</Left>", "Leftone", "Jump"),
        *("Left one available action", "<think>I might go <action>Left</action>", "<think>Left", "<think>"),
        *("<think>Left</think>", "<think><action>Left</action></think>", "<think>a</think>I go on.<think>b</think>Left"),
        "Le<think>a</think>ft",
    ],
}
"""Action → replies that chose it."""

READ_AS_JSON: dict[str | None, list[str]] = {
    "Left": [
        *('{"action": "Left"}', '{"thought": "a\nb", "action": "Left"}', '{"thought": "a \\x b", "action": "Left"}'),
        *('{"thought": "say \\"action\\": \\"Up\\"", "action": "Left"}', '{"action": "Left",}', '{"Action": "Left."}'),
        *('Sure!\n```json\n{"action": "Left"}\n```\nI go left.', '<think>{"action": "Up"}</think>{"action": "Left"}'),
        *('{"action": "Left"} {"action": "Right"}', '[{"action": "Left"}]', '{"why": {"action": "Up"}, "action": "Left"}'),
        *('{"action": "Left", "thought": "It is', '"Left"', "Left.", "<action>Left"),
    ],
    "Right": ['{"thought": "Left?", "action": "right"}'],
    None: [
        *('{"thought": "I go left', '{"action": "Left', '{"action": ["Left"]}', '{"action": 1, "turn": "Left"}'),
        *('{"action": null}', '{"action": "one available action"}', '{"action": "Left or Right"}', "{}"),
    ],
}
MARKERS = [
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think", "mm:think")),
    *((f"<{tag}>", f"</{tag}>") for tag in ("longcat_think", "think:opensource")),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis", "assistant<|channel|>final"),
    ("<|channel|>commentary<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("analysis", "assistantfinal"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    ("<|content_thinking|>", "<|end_message|><|message_model|><|content_text|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("◁think▷", "◁/think▷"),
    ("[unused16]", "[unused17]"),
    ("Here is my thought process:", "Here is my response:"),
]


@pytest.mark.parametrize(("action", "text"), [(action, text) for action, texts in READ.items() for text in texts])
def test_a_reply_is_read_as_the_specification_says(text: str, action: str | None) -> None:
    assert parse_action(text, ACTIONS) == action


@pytest.mark.parametrize(("action", "text"), [(action, text) for action, texts in READ_AS_JSON.items() for text in texts])
def test_a_json_reply_is_read_as_the_specification_says(text: str, action: str | None) -> None:
    assert parse_action(text, ACTIONS, as_json=True) == action


@pytest.mark.parametrize(("opening", "closing"), MARKERS)
def test_thoughts_are_not_read_whatever_their_markers(opening: str, closing: str) -> None:
    thoughts = "We could go <action>Left</action>. "
    for answer in ("<action>Down</action>", "Down"):
        assert parse_action(f"{opening}{thoughts}{closing}{answer}", ACTIONS) == "Down"
        assert parse_action(f"{thoughts}{closing}{answer}", ACTIONS) == "Down"  # opened by the prompt
    assert parse_action(f"{opening}{thoughts}", ACTIONS) is None  # cut
    assert parse_action(f"<action>Down</action>{opening}{thoughts}", ACTIONS) == "Down"
    assert split_thoughts(f"{thoughts}{closing}Down")[0][0].startswith(thoughts)


def test_an_action_inside_a_plan_is_not_read() -> None:
    text = "<think>Go?</think><plan>first <action>Left</action></plan><action>Down</action>"
    assert parse_action(text, ACTIONS, ["plan"]) == "Down"
    assert parse_action(text, ACTIONS) == "Left"
    assert parse_action("<plan><action>Left</action>", ACTIONS, ["plan"]) is None
    assert split_thoughts(text, ["plan"]) == (["Go?", "first <action>Left</action>"], "\n\n<action>Down</action>")


def test_a_prompt_that_ends_inside_thoughts_is_recognised() -> None:
    assert [OPENED.search(f"user: go{end}")[0] for end in ("<think>\n", "<|START_THINKING|>")]  # type: ignore[index]
    assert OPENED.search("assistant: <think>\n\n</think>\n\n") is None


@given(thought=words, between=words, action=actions, case=cases, before=blanks, after=blanks, rest=words)
def test_case_and_blanks_and_talk_around_it_do_not_matter(
    thought: str, between: str, action: str, case: type[str], before: str, after: str, rest: str
) -> None:
    reply = f"<think>{thought}</think>{between}<action>{before}{case(action)}{after}</action>{rest}"
    assert parse_action(reply, ACTIONS) == action


markers = [marker for pair in MARKERS for marker in pair]
pieces = st.sampled_from([*markers, "<action>", "</action>", *ACTIONS, "left", '{"action": "', *' "}{\\<>\n\x00\ud800'])
texts = st.one_of(st.text(), st.lists(pieces, max_size=12).map("".join))


@given(texts, st.lists(actions, unique=True), st.booleans())
def test_whatever_the_text_the_answer_is_an_available_action_that_the_text_names_or_none(
    text: str, available: list[str], as_json: bool
) -> None:
    action = parse_action(text, available, ["plan"], as_json=as_json)
    assert action is None or (action in available and action.casefold() in text.casefold())


LONG = ["<action>", "<|channel", '"\\', '{"action":', '{"a":"', "<think>", "</think>", "<", "a_", "<a_a_", " ", ".", '"a" ']


@pytest.mark.parametrize("piece", LONG)
def test_long_replies_are_read_in_linear_time(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    began = time.process_time()
    for as_json in (False, True):
        assert parse_action(text, ["Left"], ["plan"], as_json=as_json) is None
        assert parse_action("{" + text + "</action>\\", ["Left"], as_json=as_json) is None
    assert time.process_time() - began < 5  # in quadratic time it takes minutes
