"""Tokenizer, settings and context length limit replies, and an action inside the thinking is ignored."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.encoding import PromptEncoder
from tests.models.loading import edit, load, one_line, rngs
from tests.models.realistic import write_template
from tests.tiny import MakeFolder

pytestmark = pytest.mark.lowest


# ---- replies


def test_the_end_tokens_are_those_of_tokenizer_and_generation_config(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    edit(folder / "generation_config.json", eos_token_id=[3, 5])
    assert load(folder).engine.end_ids == {3, 5, tokenizer.eos_token_id}
    edit(folder / "generation_config.json", eos_token_id=7)
    assert load(folder).engine.end_ids == {7, tokenizer.eos_token_id}


def test_a_reply_ends_at_any_end_token_and_its_text_hides_special_ones(folder: Path, prompts: list[Prompt]) -> None:
    ends = list(range(250, 290))
    edit(folder / "generation_config.json", eos_token_id=ends)
    agent = load(folder, max_new_tokens=8)
    replies = agent.complete(prompts * 10, rngs(10 * len(prompts)))
    assert {reply.finish for reply in replies} == {"stop", "length"}
    assert {reply.token_ids[-1] for reply in replies} & set(agent.tokenizer.all_special_ids)
    for reply in replies:
        assert [token in ends for token in reply.token_ids] == [False] * (len(reply.token_ids) - 1) + [reply.finish == "stop"]
        assert len(reply.token_ids) == len(reply.log_probs) == len(reply.entropies)
        assert reply.text == agent.tokenizer.decode(reply.token_ids, skip_special_tokens=True)


def test_a_reply_that_is_cut_inside_thoughts_which_the_prompt_opened_is_not_read(folder: Path, prompts: list[Prompt]) -> None:
    """Where the template ends with `<think>`, the reply has no opening marker, and a cut one has no closing marker either."""
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
    """Those of Cohere's models and of gpt-oss; without them an action in the thoughts would be played."""
    special = copy.deepcopy(tokenizer)
    markers = ["<|START_THINKING|>", "<|END_THINKING|>", "<|channel|>", "<|message|>"]
    special.add_special_tokens({"additional_special_tokens": markers})
    encoder = PromptEncoder(special)
    for reply in (
        "<|START_THINKING|><action>Up</action><|END_THINKING|><action>Left</action><|end|>",
        "<|channel|>analysis<|message|><action>Up</action><|end|>assistant<|channel|>final<|message|><action>Left</action><|end|>",
    ):
        [text] = encoder.decode([(tuple(special(reply)["input_ids"]), "stop")])
        assert text == reply.replace("<|end|>", "").replace("<|message|>", "")
        assert parse_action(text, ACTIONS) == "Left"


@pytest.mark.parametrize(("positions", "advice"), [(165, r"--max-new-tokens 12\b"), (155, "expected a model with a longer")])
def test_a_prompt_that_does_not_fit_is_refused_every_time(
    make_folder: MakeFolder, prompts: list[Prompt], positions: int, advice: str
) -> None:
    agent = load(make_folder("qwen2", max_position_embeddings=positions), max_new_tokens=16)
    for _ in range(2):
        with pytest.raises(UserError, match=f"{positions} positions") as error:
            agent.complete(prompts[:1], rngs(1))
        assert re.search(advice, one_line(error))


def test_a_prompt_that_just_fits_is_answered(make_folder: MakeFolder, prompts: list[Prompt]) -> None:
    length = max(map(len, load(make_folder("qwen2")).encode(prompts)))
    folder = make_folder("qwen2", max_position_embeddings=length + 3)
    assert len(load(folder, max_new_tokens=3).complete(prompts, rngs(len(prompts)))) == len(prompts)
    with pytest.raises(UserError, match=f"{length} tokens"):
        load(folder, max_new_tokens=4).complete(prompts, rngs(len(prompts)))


ACTIONS = ("Left", "Down", "Right", "Up")
thoughts = st.text().map(lambda text: text.replace("</think>", ""))


@given(thought=thoughts, action=st.sampled_from(ACTIONS), decoy=st.sampled_from(ACTIONS))
def test_the_action_is_parsed_after_the_thinking(thought: str, action: str, decoy: str) -> None:
    thinking = f"{thought}<action>{decoy}</action>"
    for opening in ("<think>", ""):  # some templates put the opening tag at the end of the prompt
        assert parse_action(f"{opening}{thinking}</think>\n\n<action>{action}</action>", ACTIONS) == action
        assert parse_action(f"{opening}{thinking}</think> I am done.", ACTIONS) is None
    assert parse_action(f"<think>{thinking}", ACTIONS) is None
