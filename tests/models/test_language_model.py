"""A model's replies: end tokens, texts, token ids and threads; the context limits prompts and replies."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import encoding
from msgrpo_hub.models.chat_templates import ChatTemplate
from msgrpo_hub.models.devices import on_threads
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from tests.models.loading import edit, load, rngs, write_template
from tests.tiny import MakeFolder

pytestmark = pytest.mark.lowest

ACTIONS = ("Left", "Down", "Right", "Up")


def test_the_end_tokens_are_those_of_tokenizer_and_generation_config(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    for stated, used in (([3, 5], {3, 5}), (7, {7}), (["x", 3], {3})):
        edit(folder / "generation_config.json", eos_token_id=stated)
        assert load(folder).engine.end_ids == used | {tokenizer.eos_token_id}


def test_a_reply_ends_at_any_end_token_and_its_text_hides_special_ones(folder: Path, prompts: list[Prompt]) -> None:
    ends = list(range(250, 290))
    edit(folder / "generation_config.json", eos_token_id=ends)
    agent = load(folder, max_new_tokens=8)
    with pytest.raises(UserError, match="2 prompts and 1 generators: expected a generator for each prompt"):
        agent.complete(prompts[:2], rngs(1))
    assert agent.complete([], []) == []
    replies = agent.complete(prompts * 10, rngs(10 * len(prompts)))
    assert {reply.finish for reply in replies} == {"stop", "length"}
    assert {reply.token_ids[-1] for reply in replies} & set(agent.tokenizer.all_special_ids)
    for reply in replies:
        assert [token in ends for token in reply.token_ids] == [False] * (len(reply.token_ids) - 1) + [reply.finish == "stop"]
        assert len(reply.token_ids) == len(reply.log_probs) == len(reply.entropies)
        assert reply.text == agent.tokenizer.decode(reply.token_ids, skip_special_tokens=True)


def test_a_reply_that_is_truncated_inside_thoughts_which_the_prompt_opened_is_unparsed(
    folder: Path, prompts: list[Prompt]
) -> None:
    """If the template ends with `<think>`, the reply has no opening marker, and a truncated one has no closing marker either."""
    agent = load(folder, max_new_tokens=8)
    write_template(folder, f"{agent.tokenizer.chat_template}{{{{ '<think>\\n' }}}}")
    edit(folder / "generation_config.json", eos_token_id=list(range(250, 290)))
    opened = load(folder, max_new_tokens=8)
    assert opened.render(prompts)[0].endswith("<|assistant|><think>\n")
    replies = opened.complete(prompts * 10, rngs(10 * len(prompts)))
    assert {reply.finish for reply in replies} == {"stop", "length"}
    for reply in replies:
        sampled = opened.tokenizer.decode(reply.token_ids, skip_special_tokens=True)
        assert reply.text == ("<think>\n" + sampled if reply.finish == "length" else sampled)
    ids = tuple(opened.tokenizer("Perhaps <action>Left</action>")["input_ids"])
    assert [parse_action(text, ACTIONS) for text in opened.encoder.decode([(ids, "length"), (ids, "stop")])] == [None, "Left"]
    assert [parse_action(text, ACTIONS) for text in agent.encoder.decode([(ids, "length")])] == ["Left"]


def test_special_tokens_that_mark_thoughts_stay_in_the_text_of_a_reply(tokenizer: PreTrainedTokenizerFast) -> None:
    """As in Cohere's models and gpt-oss; without them an action in the thoughts would be played."""
    special = copy.deepcopy(tokenizer)
    markers = ["<|START_THINKING|>", "<|END_THINKING|>", "<|channel|>", "<|message|>"]
    special.add_special_tokens({"additional_special_tokens": markers})
    for reply in (
        "<|START_THINKING|><action>Up</action><|END_THINKING|><action>Left</action><|end|>",
        "<|channel|>analysis<|message|><action>Up</action><|end|>assistant<|channel|>final<|message|><action>Left</action><|end|>",
    ):
        [text] = PromptEncoder(special).decode([(tuple(special(reply)["input_ids"]), "stop")])
        assert text == reply.replace("<|end|>", "").replace("<|message|>", "")
        assert parse_action(text, ACTIONS) == "Left"


def test_a_prompt_that_just_fits_is_answered(make_folder: MakeFolder, prompts: list[Prompt]) -> None:
    length = max(map(len, load(make_folder("qwen2")).encode(prompts)))
    folder = make_folder("qwen2", max_position_embeddings=length + 3)
    assert len(load(folder, max_new_tokens=3).complete(prompts, rngs(len(prompts)))) == len(prompts)
    with pytest.raises(UserError, match=f"{length} tokens"):
        load(folder, max_new_tokens=4).complete(prompts, rngs(len(prompts)))


def test_equal_prompts_are_encoded_once_and_a_full_cache_is_emptied(
    tokenizer: PreTrainedTokenizerFast, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, distinct = PromptEncoder(tokenizer), list(dict.fromkeys(prompts))
    texts = encoder.template.render([prompt.messages for prompt in distinct])
    whole = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    monkeypatch.setattr(encoding, "CAPACITY", 2 * len(whole[0]))
    for batch in ([0, 1, 1], [2, 3], [4, 5], [3, 4], [0, 1]):
        assert encoder.encode([distinct[k] for k in batch]) == [whole[k] for k in batch]
        assert len(encoder._ids) <= 4


def test_another_thread_may_empty_the_cache_of_prompts_while_new_ones_are_rendered(
    folder: Path, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, render, expected = load(folder), ChatTemplate.render, load(folder).encode(prompts)
    monkeypatch.setattr(ChatTemplate, "render", lambda *given: vars(agent.encoder).update(_ids={}) or render(*given))
    assert agent.encode(prompts) == expected


def test_a_small_model_computes_on_one_thread_and_training_sets_the_threads_itself(
    qwen2_folder: Path, prompts: list[Prompt]
) -> None:
    small = load(qwen2_folder, max_new_tokens=8)
    with on_threads(2):
        assert [threads_of(model, prompts) for model in (small, replace(small, threads=None))] == [{1}, {2}]
        assert torch.get_num_threads() == 2


def threads_of(model: LanguageModel, prompts: list[Prompt]) -> set[int]:
    """The threads of its forward passes, of a sampled and of a scored reply."""
    model.complete(prompts, rngs(len(prompts)))  # chooses the engine
    seen: set[int] = set()
    hook = model.model.get_input_embeddings().register_forward_pre_hook(lambda *_: seen.add(torch.get_num_threads()))
    ScorePolicy(model).complete(prompts, rngs(len(prompts)))
    model.complete(prompts, rngs(len(prompts)))
    hook.remove()
    return seen
