"""Templates in the style of real models render prompts as their authors meant: the exact text, with history and switches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_templates import ChatTemplate, template_of
from tests.models.realistic import DIALOGUE, TEMPLATES, with_template

SWITCHES = {"enable_thinking": False, "date_string": "1 Jan 2025"}
PARTS = ("idefics3", "llava_next")
"""Templates that render nothing of a content that is a text."""


@cache
def foreign(name: str) -> ChatTemplate:
    """Made once, so that each template starts one process."""
    return template_of(with_template(TEMPLATES[name]), name, {})


def text(name: str, messages: list[Message], **switches: str | bool) -> str:
    template = foreign(name)
    return replace(template, variables={**template.variables, **switches}).render([messages])[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_process_renders_what_apply_chat_template_renders(name: str) -> None:
    tokenizer, template = with_template(TEMPLATES[name]), foreign(name)
    dialogue = DIALOGUE if template.system_role else DIALOGUE[1:]
    for messages in (dialogue, dialogue[:-2], [Message(role="user", content="Zeile\n\U0001f40d \ud800 <|im_end|>")]):
        given = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
        offered = given if name in PARTS else messages
        expected = tokenizer.apply_chat_template(offered, add_generation_prompt=True, tokenize=False, **SWITCHES)
        assert text(name, messages, **SWITCHES) == expected


def test_thinking_is_switched_off_by_enable_thinking() -> None:
    """Qwen3's template thinks by default. It also takes the thoughts out of past replies."""
    plain = (
        "<|im_start|>system\nThe rules.<|im_end|>\n"
        "<|im_start|>user\nCurrent Observation:\nFirst\nAct!<|im_end|>\n"
        "<|im_start|>assistant\n<action>Up</action><|im_end|>\n"
        "<|im_start|>user\nCurrent Observation:\nSecond\nAct!<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert text("qwen3", DIALOGUE) == text("qwen3", DIALOGUE, enable_thinking=True) == plain
    assert text("qwen3", DIALOGUE, enable_thinking=False) == f"{plain}<think>\n\n</think>\n\n"


def test_a_template_that_raises_on_a_system_message_and_on_roles_that_do_not_alternate_gets_the_rules_from_the_user() -> None:
    """Gemma 2's template."""
    assert not foreign("gemma").system_role
    assert text("gemma", DIALOGUE) == (
        "<|pad|><start_of_turn>user\nThe rules.\n\nCurrent Observation:\nFirst\nAct!<end_of_turn>\n"
        "<start_of_turn>model\n<think>Hm.</think><action>Up</action><end_of_turn>\n"
        "<start_of_turn>user\nCurrent Observation:\nSecond\nAct!<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_a_template_that_wants_alternating_roles_and_offers_tools_renders_a_history() -> None:
    """Mistral's template puts the system text into the last message."""
    assert text("mistral", DIALOGUE) == (
        "<|pad|>[INST] Current Observation:\nFirst\nAct![/INST] <think>Hm.</think><action>Up</action><|end|>"
        "[INST] The rules.\n\nCurrent Observation:\nSecond\nAct![/INST]"
    )


def test_a_template_that_drops_texts_is_given_lists_of_parts() -> None:
    """Templates of models that read images loop over the parts of a content."""
    assert text("idefics3", DIALOGUE[:2]) == (
        "<|im_start|>System: The rules.<end_of_utterance>\nUser: Current Observation:\nFirst\nAct!<end_of_utterance>\nAssistant:"
    )
    assert text("llava_next", DIALOGUE[:2]) == "The rules. USER: Current Observation:\nFirst\nAct! ASSISTANT:"


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("qwen3", {"enable_thinking": False}),
        ("gpt-oss", {"reasoning_effort": "low"}),
        ("qwen2.5", {}),
        ("llama3", {}),
    ],
)
def test_the_switches_for_no_thinking_are_those_that_change_the_prompt(name: str, switches: dict[str, str | bool]) -> None:
    assert foreign(name).thinking_off() == switches


@pytest.mark.parametrize(
    ("template", "switches"),
    [
        ("{% if reasoning_effort not in ['high', 'low', 'no_think'] %}{% set reasoning_effort = 'no_think' %}{% endif %}", {}),
        ("{% if thinking is not defined %}{% set thinking = false %}{% endif %}{% if thinking %}<think>{% endif %}", {}),
        ("{% if thinking is not defined or thinking %}<think>{% endif %}", {"thinking": False}),
        ("{{ 'off' if reasoning_effort == 'none' else 'on' }}", {"reasoning_effort": "none"}),
        ("{{ raise_exception('efforts: medium') if reasoning_effort is defined and reasoning_effort != 'medium' }}", {}),
        ("{% if enable_thinking is not false %}{{ reasoning_effort or 'high' }}{% endif %}", {"enable_thinking": False}),
    ],
    ids=["off by default", "off unless asked for", "on by default", "has a word for none", "refuses", "two switches, one enough"],
)
def test_a_switch_is_left_alone_where_it_would_not_lessen_the_thinking(template: str, switches: dict[str, str | bool]) -> None:
    plain = "{% for message in messages %}{{ message.content }}{% endfor %}"
    assert template_of(with_template(template + plain), "m", {}).thinking_off() == switches


def test_what_a_template_raises_for_a_conversation_is_quoted_in_one_line() -> None:
    with pytest.raises(UserError) as caught:
        text("mistral", [DIALOGUE[1], DIALOGUE[1]])
    assert str(caught.value) == (
        "the chat template of 'mistral' does not work (After the optional system message, conversation roles must alternate "
        "user/assistant/user/assistant/...): expected a Jinja template that renders messages"
    )
