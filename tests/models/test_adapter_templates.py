"""An adapter is prompted with the chat template, the tokenizer and the switches beside it, and not with its base's."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.models.loading import open_model
from tests.models.loading import TEMPLATES, load, refused, save_adapter, write_template

OTHER = (
    "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}(me){% endif %}"
)
TYPED = OTHER.replace("(me)", "(typed)")


@pytest.fixture
def adapter(folder: Path, tmp_path: Path) -> Path:
    return write_template(save_adapter(folder, tmp_path / "adapter"), OTHER)


def rendered(adapter: Path, prompt: Prompt, **options: str) -> str:
    [text] = load(adapter, **options).render([prompt])
    return text


def test_a_typed_template_wins_over_the_adapters_which_wins_over_its_bases_and_one_line_says_so(
    adapter: Path, folder: Path, prompts: list[Prompt], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = f"(system) {prompts[0].system}<|end|>(user) {prompts[0].user}<|end|>(me)"
    with caplog.at_level(logging.WARNING):
        assert rendered(adapter, prompts[0]) == expected
    assert caplog.messages == [f"the adapter {str(adapter)!r} has its own chat template, used in place of the base's"]
    assert load(folder, adapter=str(adapter)).render(prompts[:1]) == [expected]
    assert load(folder).render(prompts[:1]) != [expected]
    caplog.clear()
    (tmp_path / "typed.jinja").write_text(TYPED)
    assert rendered(adapter, prompts[0], chat_template=str(tmp_path / "typed.jinja")).endswith("(typed)")
    assert caplog.messages == []


def test_an_adapter_plays_on_a_base_without_a_template(
    adapter: Path, folder: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "chat_template.jinja").unlink()
    assert rendered(adapter, prompts[0]).endswith("(me)")
    assert caplog.messages == []
    (adapter / "chat_template.jinja").unlink()
    assert "has no chat template: pass one with --chat-template FILE" in refused(load, adapter)


def test_a_tokenizer_that_equals_the_bases_is_not_mentioned(
    adapter: Path, folder: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture
) -> None:
    """TRL and Unsloth save the tokenizer of the base beside every adapter, with other padding and truncation."""
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(folder, padding_side="left", pad_token="<|end|>")
    tokenizer(["a", "a longer text"], padding=True, truncation=True, max_length=3)
    tokenizer.save_pretrained(adapter)
    assert json.loads((adapter / "tokenizer.json").read_text())["padding"]
    with caplog.at_level(logging.WARNING):
        assert rendered(adapter, prompts[0]) == load(folder).render(prompts[:1])[0]
    assert caplog.messages == []


def test_a_tokenizer_beside_an_adapter_that_fits_the_base_is_used(
    adapter: Path, folder: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture
) -> None:
    """Its end token is another one of the base's vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(folder, eos_token="<|user|>")
    tokenizer.chat_template = OTHER
    tokenizer.save_pretrained(adapter)
    with caplog.at_level(logging.WARNING):
        agent = load(adapter)
    expected = f"the adapter {str(adapter)!r} has its own tokenizer and chat template, used in place of the base's"
    assert caplog.messages == [expected]
    assert agent.tokenizer.eos_token == "<|user|>"
    assert tokenizer.convert_tokens_to_ids("<|user|>") in agent.engine.end_ids
    assert agent.encode(prompts[:1]) == [tuple(tokenizer(agent.render(prompts[:1]), add_special_tokens=False)["input_ids"][0])]


def test_a_tokenizer_with_tokens_beyond_the_base_is_refused_in_one_line(adapter: Path, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<brand-new>"])
    tokenizer.save_pretrained(adapter)
    assert refused(open_model, str(adapter)) == (
        f"the tokenizer beside the adapter {str(adapter)!r} has 1 tokens, such as '<brand-new>', beyond the 391 of its base "
        f"{str(folder)!r}: expected a tokenizer that fits the base"
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", "{}", "cannot load the tokenizer beside the adapter"),
        (
            "tokenizer_config.json",
            '{"vocab_file": "../.env"}',
            "its tokenizer's vocab_file is '../.env'; expected a file of",
        ),
        ("chat_template.jinja", "Hello", "drops the rules, the observation, the request"),
    ],
)
def test_the_files_beside_an_adapter_pass_the_checks_of_a_bases(
    adapter: Path, folder: Path, name: str, content: str, words: str
) -> None:
    AutoTokenizer.from_pretrained(folder).save_pretrained(adapter)
    (adapter / name).write_text(content)
    said = refused(open_model, str(adapter))
    assert words in said
    assert repr(str(adapter)) in said


def test_a_models_own_thinking_is_off_unless_chosen_and_one_line_says_so(
    folder: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture
) -> None:
    write_template(folder, TEMPLATES["qwen3"])
    with caplog.at_level(logging.WARNING):
        agent = load(folder)
    assert caplog.messages == [
        f'{folder}: the model\'s own thinking is limited with {{"enable_thinking": false}}, because replies are short; '
        "--chat-template-kwargs changes it"
    ]
    assert agent.render(prompts[:1])[0].endswith("<think>\n\n</think>\n\n")
    assert agent.chat_template_kwargs == {"enable_thinking": False}
    caplog.clear()
    chosen = load(folder, chat_template_kwargs={"enable_thinking": True, "thinking": False})
    assert chosen.render(prompts[:1])[0].endswith("<|im_start|>assistant\n")
    assert caplog.messages == [f"chat_template_kwargs: the chat template of {str(folder)!r} never reads 'thinking'"]


def test_an_adapter_thinks_as_it_was_trained(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter that stores its prompt format but no switch was trained with the default of the template."""
    adapter = save_adapter(write_template(folder, TEMPLATES["qwen3"]), tmp_path / "adapter")
    assert open_model(str(adapter)).chat_template_kwargs == {"enable_thinking": False}
    caplog.clear()
    for switches in ({}, {"chat_template_kwargs": {"enable_thinking": True}}):
        (adapter / "msgrpo.json").write_text(json.dumps({"prompt_format": "json", **switches}))
        assert open_model(str(adapter)).chat_template_kwargs == switches.get("chat_template_kwargs", {})
    assert caplog.messages == []
