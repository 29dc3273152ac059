"""Chat templates render prompts without additions or losses, as their authors meant, or are refused in one line."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import Message, conversation
from msgrpo_hub.models.chat_templates import ChatTemplate, template_of
from tests.models.loading import TEMPLATES, edit, load, refused, rngs, with_template, write_template

GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}<start_of_turn>{{ message['role'] }}\n{{ message['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SILENT = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "[INST] {{ message['content'] }} [/INST]{% endif %}{% endfor %}"
)
ALTERNATING = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' if message['role'] == 'user' else message['content'] }}{% endfor %}"
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.lowest
@pytest.mark.parametrize("template", [GEMMA, SILENT, ALTERNATING], ids=["raises", "drops", "alternates"])
def test_a_template_without_a_system_role_renders_the_rules_once(folder: Path, prompts: list[Prompt], template: str) -> None:
    agent = load(write_template(folder, template), max_new_tokens=2)
    texts = agent.render(prompts)
    for prompt, text in zip(prompts, texts, strict=True):
        for part in (prompt.user, *prompt.game.rules, prompt.game.instructions, ", ".join(prompt.game.actions)):
            assert text.count(part) == 1
        assert text.index(prompt.game.rules[-1]) < text.index(prompt.user)
    replies = agent.complete(prompts, rngs(len(prompts)))
    assert [agent.tokenizer.decode(reply.prompt_ids) for reply in replies] == texts


@pytest.mark.lowest
def test_prompts_are_encoded_as_the_template_renders_them_with_nothing_added(
    qwen2_folder: Path, prompts: list[Prompt], tokenizer: PreTrainedTokenizerFast
) -> None:
    agent = load(qwen2_folder)
    assert agent.render(prompts[:1]) == [f"<|system|>{prompts[0].system}<|end|><|user|>{prompts[0].user}<|end|><|assistant|>"]
    bos = TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", tokenizer.pad_token_id)])
    agent.tokenizer.backend_tokenizer.post_processor = bos  # as Llama's does; a chat template adds its own
    assert agent.tokenizer("Up")["input_ids"][0] == tokenizer.pad_token_id
    expected = [tuple(tokenizer.apply_chat_template(p.messages, add_generation_prompt=True)["input_ids"]) for p in prompts]
    assert agent.encode(prompts) == expected
    assert agent.encode(prompts[::-1]) == expected[::-1]


# ---- templates that are refused


def test_a_missing_template_can_be_supplied_by_a_file(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    said = refused(load, folder)
    assert "--chat-template" in said
    assert str(folder) in said
    (tmp_path / "mine.jinja").write_text(SILENT)
    assert load(folder, chat_template=str(tmp_path / "mine.jinja")).tokenizer.chat_template == SILENT
    (tmp_path / "broken.jinja").write_text("{% for message in %}")
    for file in ("no-such-file.jinja", str(tmp_path / "broken.jinja")):
        assert "chat template" in refused(load, folder, chat_template=file)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("Hello", "drops the rules, the observation, the request: expected one that renders the content of system and user"),
        ("{% for message in messages %}{{ message['content'][:30] }}{% endfor %}", "drops the observation, the request"),
        (
            CHATML.partition("{% if add_generation_prompt")[0],
            r"adds no generation prompt: expected '<|im_end|>\n<|im_start|>assistant\n' after the request",
        ),
    ],
    ids=["fixed text", "cuts", "no generation prompt"],
)
def test_a_template_with_which_a_model_would_play_blind_is_refused(folder: Path, template: str, words: str) -> None:
    said = refused(load, write_template(folder, template))
    assert words in said
    assert f"the chat template of {str(folder)!r}" in said
    assert "--chat-template FILE" in said


# ---- the end of a reply


def with_special_tokens(folder: Path) -> tuple[int, int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    return tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.eos_token_id


def test_the_token_with_which_the_template_ends_a_turn_ends_replies_and_one_line_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn_end, eos = with_special_tokens(folder)
    assert turn_end != eos
    with caplog.at_level(logging.WARNING):
        assert load(write_template(folder, CHATML)).engine.end_ids == {turn_end, eos}
    assert caplog.messages == [f"{folder}: replies also end at '<|im_end|>', with which the chat template ends a turn"]
    caplog.clear()
    edit(folder / "generation_config.json", eos_token_id=[turn_end])
    assert load(folder).engine.end_ids == {turn_end, eos}
    edit(folder / "generation_config.json", eos_token_id=None)
    assert load(write_template(folder, CHATML.replace("<|im_end|>", "\n--"))).engine.end_ids == {eos}  # ends with plain text
    assert caplog.messages == []


# ---- templates in the style of well-known models

DIALOGUE = conversation("The rules.", [("First", "<think>Hm.</think><action>Up</action>")], "Second", "Act!")
"""A prompt of a format with history."""
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


QWEN3 = (
    "<|im_start|>system\nThe rules.<|im_end|>\n"
    "<|im_start|>user\nCurrent Observation:\nFirst\nAct!<|im_end|>\n"
    "<|im_start|>assistant\n<action>Up</action><|im_end|>\n"
    "<|im_start|>user\nCurrent Observation:\nSecond\nAct!<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    ("name", "switches", "rendered"),
    [
        ("qwen3", {}, QWEN3),  # takes the thoughts out of past replies
        ("qwen3", {"enable_thinking": False}, f"{QWEN3}<think>\n\n</think>\n\n"),
        (
            "gemma",  # raises on a system message and on roles that do not alternate
            {},
            "<|pad|><start_of_turn>user\nThe rules.\n\nCurrent Observation:\nFirst\nAct!<end_of_turn>\n"
            "<start_of_turn>model\n<think>Hm.</think><action>Up</action><end_of_turn>\n"
            "<start_of_turn>user\nCurrent Observation:\nSecond\nAct!<end_of_turn>\n"
            "<start_of_turn>model\n",
        ),
        (
            "mistral",  # puts the system text into the last message
            {},
            "<|pad|>[INST] Current Observation:\nFirst\nAct![/INST] <think>Hm.</think><action>Up</action><|end|>"
            "[INST] The rules.\n\nCurrent Observation:\nSecond\nAct![/INST]",
        ),
    ],
)
def test_a_history_is_rendered_as_the_author_meant(name: str, switches: dict[str, bool], rendered: str) -> None:
    assert text(name, DIALOGUE, **switches) == rendered


def test_a_template_that_drops_texts_is_given_lists_of_parts(folder: Path, prompts: list[Prompt]) -> None:
    """Templates of models that read images loop over the parts of a content, or index them."""
    assert text("idefics3", DIALOGUE[:2]) == (
        "<|im_start|>System: The rules.<end_of_utterance>\nUser: Current Observation:\nFirst\nAct!<end_of_utterance>\nAssistant:"
    )
    assert text("llava_next", DIALOGUE[:2]) == "The rules. USER: Current Observation:\nFirst\nAct! ASSISTANT:"
    indexes = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'][0]['text'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    [rendered] = load(write_template(folder, indexes)).render(prompts[:1])
    assert rendered == f"system: {prompts[0].system}\nuser: {prompts[0].user}\nassistant:"


# ---- thinking

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "switches"),
    [
        (TEMPLATES["qwen3"], {"enable_thinking": False}),
        (TEMPLATES["gpt-oss"], {"reasoning_effort": "low"}),
        (TEMPLATES["qwen2.5"], {}),
        ("{% if reasoning_effort not in ['high', 'low'] %}{% set reasoning_effort = 'no_think' %}{% endif %}" + PLAIN, {}),
        ("{% if thinking is not defined %}{% set thinking = false %}{% endif %}{% if thinking %}<think>{% endif %}" + PLAIN, {}),
        ("{% if thinking is not defined or thinking %}<think>{% endif %}" + PLAIN, {"thinking": False}),
        ("{{ 'off' if reasoning_effort == 'none' else 'on' }}" + PLAIN, {"reasoning_effort": "none"}),
        ("{{ raise_exception('medium') if reasoning_effort is defined and reasoning_effort != 'medium' }}" + PLAIN, {}),
        ("{% if enable_thinking is not false %}{{ reasoning_effort or 'high' }}{% endif %}" + PLAIN, {"enable_thinking": False}),
    ],
    ids=[
        *("qwen3", "gpt-oss", "qwen2.5", "off by default", "off unless asked for", "on by default"),
        *("has a word for none", "refuses", "two switches, one enough"),
    ],
)
def test_the_switches_that_lessen_the_thinking_are_found(template: str, switches: dict[str, str | bool]) -> None:
    assert template_of(with_template(template), "m", {}).thinking_off() == switches
