"""The chat template of the model renders prompts without additions or losses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from tests.models.loading import edit, load, one_line, rngs
from tests.models.realistic import write_template

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

pytestmark = pytest.mark.lowest


# ---- chat templates


@pytest.mark.parametrize("template", [GEMMA, SILENT, ALTERNATING], ids=["raises", "drops", "alternates"])
def test_a_template_without_a_system_role_renders_the_rules_once(folder: Path, prompts: list[Prompt], template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    agent = load(folder, max_new_tokens=2)
    texts = agent.render(prompts)
    for prompt, text in zip(prompts, texts, strict=True):
        for part in (prompt.user, *prompt.game.rules, prompt.game.instructions, ", ".join(prompt.game.actions)):
            assert text.count(part) == 1
        assert text.index(prompt.game.rules[-1]) < text.index(prompt.user)
    replies = agent.complete(prompts, rngs(len(prompts)))
    assert [agent.tokenizer.decode(reply.prompt_ids) for reply in replies] == texts


def test_a_template_with_a_system_role_keeps_the_two_messages_apart(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    expected = f"<|system|>{prompts[0].system}<|end|><|user|>{prompts[0].user}<|end|><|assistant|>"
    assert load(qwen2_folder).render(prompts[:1]) == [expected]


def test_prompts_are_encoded_as_the_template_renders_them_with_nothing_added(
    qwen2_folder: Path, prompts: list[Prompt], tokenizer: PreTrainedTokenizerFast
) -> None:
    agent = load(qwen2_folder)
    bos = TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", tokenizer.pad_token_id)])
    agent.tokenizer.backend_tokenizer.post_processor = bos  # as Llama's does; a chat template adds its own
    assert agent.tokenizer("Up")["input_ids"][0] == tokenizer.pad_token_id
    expected = [tuple(tokenizer.apply_chat_template(p.messages, add_generation_prompt=True)["input_ids"]) for p in prompts]
    assert agent.encode(prompts) == expected
    assert agent.encode(prompts[::-1]) == expected[::-1]


def test_a_model_without_a_template_names_the_option_that_supplies_one(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="--chat-template") as error:
        load(folder)
    assert str(folder) in one_line(error)
    (tmp_path / "mine.jinja").write_text(SILENT)
    agent = load(folder, chat_template=str(tmp_path / "mine.jinja"))
    assert agent.tokenizer.chat_template == SILENT


def test_a_missing_template_file_is_named(qwen2_folder: Path) -> None:
    with pytest.raises(UserError, match="no-such-file") as error:
        load(qwen2_folder, chat_template="no-such-file.jinja")
    one_line(error)


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_GENERATION_PROMPT = CHATML.partition("{% if add_generation_prompt")[0]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("Hello", "drops the rules, the observation, the request: expected one that renders the content of system and user"),
        ("{{ messages[0]['content'].splitlines()[0] }} Act.", "drops the observation, the request: expected one"),
        ("{% for message in messages %}{{ message['content'][:30] }}{% endfor %}", "drops the observation, the request"),
        (NO_GENERATION_PROMPT, r"adds no generation prompt: expected '<|im_end|>\n<|im_start|>assistant\n' after the request"),
    ],
    ids=["fixed text", "the first line alone", "cuts", "no generation prompt"],
)
def test_a_template_with_which_a_model_would_play_blind_is_refused_in_one_line(folder: Path, template: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        load(write_template(folder, template))
    assert words in one_line(error)
    assert f"the chat template of {str(folder)!r}" in str(error.value)
    assert "--chat-template FILE" in str(error.value)


def test_a_template_that_indexes_the_parts_of_a_content_shows_them(folder: Path, prompts: list[Prompt]) -> None:
    template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'][0]['text'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    [text] = load(write_template(folder, template)).render(prompts[:1])
    assert text == f"system: {prompts[0].system}\nuser: {prompts[0].user}\nassistant:"


@pytest.mark.parametrize("template", [SILENT, CHATML], ids=["a reply follows the request", "a header precedes the reply"])
def test_a_template_whose_prompt_ends_where_a_reply_starts_is_accepted(folder: Path, template: str) -> None:
    assert load(write_template(folder, template)).encoder.template.source == str(folder)


# ---- the end of a reply


def with_special_tokens(folder: Path) -> tuple[int, int]:
    """Adds the special tokens of ChatML; the tokenizer's end token stays another one."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    return tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.eos_token_id


def test_the_token_with_which_the_template_ends_a_turn_ends_replies_and_one_line_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SmolLM2 with a tokenizer whose end token is <|endoftext|> would continue with turns of its own invention."""
    turn_end, eos = with_special_tokens(folder)
    assert turn_end != eos
    with caplog.at_level(logging.WARNING):
        assert load(write_template(folder, CHATML)).engine.end_ids == {turn_end, eos}
    assert caplog.messages == [f"{folder}: replies also end at '<|im_end|>', with which the chat template ends a turn"]
    caplog.clear()
    edit(folder / "generation_config.json", eos_token_id=[turn_end])
    assert load(folder).engine.end_ids == {turn_end, eos}
    assert caplog.messages == []


def test_a_template_that_ends_a_turn_with_plain_text_adds_no_end_token(folder: Path) -> None:
    _, eos = with_special_tokens(folder)
    assert load(write_template(folder, CHATML.replace("<|im_end|>", "\n--"))).engine.end_ids == {eos}


def test_a_template_that_is_not_jinja_is_refused(qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    (tmp_path / "broken.jinja").write_text("{% for message in %}")
    with pytest.raises(UserError, match="template") as error:
        load(qwen2_folder, chat_template=str(tmp_path / "broken.jinja")).complete(prompts[:1], rngs(1))
    one_line(error)
