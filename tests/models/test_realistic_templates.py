"""Templates in the style of real models render prompts as their authors meant: the exact text, with history and switches."""

from __future__ import annotations

import logging
from functools import cache

import pytest

from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_templates import ChatTemplate, template_of
from tests.models.realistic import DIALOGUE, TEMPLATES, with_template

SWITCHES = {"enable_thinking": False, "date_string": "1 Jan 2025"}


@cache
def foreign(name: str) -> ChatTemplate:
    """Made once, so that each template starts one process."""
    return template_of(with_template(TEMPLATES[name]), name, {})


@pytest.fixture(scope="module", autouse=True)
def end_processes() -> object:
    yield
    foreign.cache_clear()


def text(name: str, messages: list[Message], **switches: str | bool) -> str:
    template = foreign(name)
    chosen = ChatTemplate(
        source=name, variables={**template.variables, **switches}, renderer=template.renderer, system_role=template.system_role
    )
    return chosen.render([messages])[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_process_renders_what_apply_chat_template_renders(name: str) -> None:
    tokenizer, template = with_template(TEMPLATES[name]), foreign(name)
    dialogue = DIALOGUE if template.system_role else DIALOGUE[1:]
    for messages in (dialogue, dialogue[:-2], [Message(role="user", content="Zeile\n\U0001f40d \ud800 <|im_end|>")]):
        expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **SWITCHES)
        assert text(name, messages, **SWITCHES) == expected


def test_a_default_system_text_gives_way_to_the_rules_and_tools_are_not_named() -> None:
    """Qwen2.5's template has a system text of its own, and a section for tools."""
    assert text("qwen2.5", DIALOGUE) == (
        "<|im_start|>system\nThe rules.<|im_end|>\n"
        "<|im_start|>user\nCurrent Observation:\nFirst\nAct!<|im_end|>\n"
        "<|im_start|>assistant\n<think>Hm.</think><action>Up</action><|im_end|>\n"
        "<|im_start|>user\nCurrent Observation:\nSecond\nAct!<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


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


def test_a_template_with_a_date_renders_the_one_that_is_chosen() -> None:
    """Llama 3's template writes today's date; `date_string` makes prompts reproducible."""
    assert text("llama3", DIALOGUE, date_string="1 Jan 2025") == (
        "<|pad|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 1 Jan 2025\n\nThe rules.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nCurrent Observation:\nFirst\nAct!<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n<think>Hm.</think><action>Up</action><|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nCurrent Observation:\nSecond\nAct!<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_a_switch_that_the_template_never_reads_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        foreign("qwen3").log_unused({"enable_thinking": False})
        assert caplog.messages == []
        foreign("qwen3").log_unused({"enable_thinking": False, "thinking": False})
    assert caplog.messages == ["chat_template_kwargs: the chat template of 'qwen3' never reads 'thinking'"]


def test_what_a_template_raises_for_a_conversation_is_quoted_in_one_line() -> None:
    with pytest.raises(UserError) as caught:
        text("mistral", [DIALOGUE[1], DIALOGUE[1]])
    assert str(caught.value) == (
        "the chat template of 'mistral' does not work (After the optional system message, conversation roles must alternate "
        "user/assistant/user/assistant/...): expected a Jinja template that renders messages"
    )
