"""A model's replies: end tokens, texts, token ids and threads; the context limits prompts and replies."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import encoding
from msgrpo_hub.models.devices import SMALL_MODEL, default_threads, on_threads
from msgrpo_hub.models.encoding import PromptEncoder, split_points, tokenize
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from tests.models.loading import edit, load, one_line, rngs, write_template
from tests.tiny import MakeFolder

pytestmark = pytest.mark.lowest

ACTIONS = ("Left", "Down", "Right", "Up")


# ---- replies


def test_the_end_tokens_are_those_of_tokenizer_and_generation_config(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    for stated, used in (([3, 5], {3, 5}), (7, {7}), (["x", 3], {3})):
        edit(folder / "generation_config.json", eos_token_id=stated)
        assert load(folder).engine.end_ids == used | {tokenizer.eos_token_id}


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


# ---- the context


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


# ---- token ids of prompts


def test_no_more_token_ids_are_cached_than_allowed(
    tokenizer: PreTrainedTokenizerFast, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    distinct = list(dict.fromkeys(prompts))
    whole = PromptEncoder(tokenizer).encode(distinct)
    monkeypatch.setattr(encoding, "_CAPACITY", 2 * len(whole[0]))
    encoder, largest = PromptEncoder(tokenizer), max(map(len, whole))
    for batch in ([0, 1], [2, 3], [4, 5], [3, 4], [0, 1]):
        assert encoder.encode([distinct[k] for k in batch]) == [whole[k] for k in batch]
        assert encoder._kept == sum(map(len, encoder._ids.values())) <= encoding._CAPACITY + 2 * largest


LETTERS = "abc ▁\nABĠĊ"
MERGES = [("a", "b"), ("▁", "a"), ("▁", "ab"), ("▁", "▁"), ("Ġ", "a"), ("c", "c"), ("A", "B"), ("▁", "c")]
SPECIAL = ("<s>", "<s>[c]", "</s>", "[c]")


def make(
    pre_tokenizer: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None, **special: bool
) -> PreTrainedTokenizerFast:
    """A BPE tokenizer over a few letters."""
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys([*LETTERS, *"<>/[]s", *map("".join, MERGES)]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([AddedToken(token, special=True, **{"normalized": False, **special}) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken("abc", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<s>")


KINDS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "bytes, as Qwen": lambda: make(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "bytes, a space before": lambda: make(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "a space before the text, as Gemma 1 or Llama 2": lambda: make(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "a space before every piece": lambda: make(pre_tokenizers.Metaspace(prepend_scheme="always")),
    "a normaliser that adds": lambda: make(pre_tokenizers.Split("▁", "merged_with_next"), normalizers.Prepend("▁")),
    "lower case": lambda: make(pre_tokenizers.Whitespace(), normalizers.Lowercase()),
    "special tokens that take space on the left": lambda: make(pre_tokenizers.Metaspace(prepend_scheme="first"), lstrip=True),
    "special tokens that take space on the right": lambda: make(pre_tokenizers.Metaspace(prepend_scheme="first"), rstrip=True),
    "special words": lambda: make(pre_tokenizers.ByteLevel(add_prefix_space=False), single_word=True),
    "normalised special tokens": lambda: make(pre_tokenizers.Metaspace(), normalizers.Lowercase(), normalized=True),
}

texts = st.lists(st.lists(st.sampled_from([*LETTERS, *SPECIAL, "ab", "abc", "  ", "<s"])).map("".join), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=texts)
def test_texts_split_at_special_tokens_have_the_ids_of_whole_texts(kind: str, texts: list[str]) -> None:
    tokenizer = KINDS[kind]()
    whole = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert tokenize(tokenizer, texts, split_points(tokenizer)) == whole


def test_the_prefix_of_two_prompts_is_tokenised_once(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    agent, tokenised = load(qwen2_folder), list[str]()

    class Recording(type(agent.tokenizer)):  # type: ignore[misc]
        def __call__(self, texts: list[str], **options: object) -> object:
            tokenised.extend(texts)
            return super().__call__(texts, **options)

    agent.tokenizer.__class__ = Recording
    agent.encode(prompts)
    for part in {prompt.system for prompt in prompts} | {prompts[0].user}:
        assert sum(part in text for text in tokenised) == 1


def test_another_kind_of_tokenizer_gets_whole_texts() -> None:
    """For example SentencePiece or mistral-common, whose splitting is unknown here."""
    tokenised: list[str] = []

    class Other(PreTrainedTokenizerBase):
        def __call__(self, texts: list[str], **_options: object) -> dict[str, list[list[int]]]:
            tokenised.extend(texts)
            return {"input_ids": [[len(text)] for text in texts]}

    other = Other()
    assert tokenize(other, ["<s>ab</s>", "<s>b</s>", "<s>ab</s>"], split_points(other)) == [(9,), (8,), (9,)]
    assert tokenised == ["<s>ab</s>", "<s>b</s>"]


# ---- threads


@pytest.fixture
def _two_threads() -> Iterator[None]:
    with on_threads(2):
        yield


@pytest.mark.usefixtures("_two_threads")
def test_a_small_model_computes_on_one_thread_and_a_large_one_as_torch_is_set(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    small = load(qwen2_folder, max_new_tokens=8)
    assert small.model.num_parameters() < SMALL_MODEL
    for model, threads in ((small, 1), (replace(small, threads=None), 2)):  # training sets the threads of torch itself
        seen = threads_of(model, prompts)
        assert seen == {threads}
        assert torch.get_num_threads() == 2
    assert default_threads(SMALL_MODEL) is None
    with on_threads(None):
        torch.set_num_threads(1)
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
