"""Tokenising the shared pieces of prompts once gives the same ids as tokenising whole prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.models.encoding import split_points, tokenize
from msgrpo_hub.models.language_model import LanguageModel

pytestmark = pytest.mark.lowest

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
    agent = LanguageModel.from_pretrained(str(qwen2_folder))
    tokenised: list[str] = []

    class Recording(type(agent.tokenizer)):  # type: ignore[misc]
        def __call__(self, texts: list[str], **options: object) -> object:
            tokenised.extend(texts)
            return super().__call__(texts, **options)

    agent.tokenizer.__class__ = Recording
    agent.encode(prompts)
    for system in {prompt.system for prompt in prompts}:
        assert sum(system in text for text in tokenised) == 1
    assert sum(prompts[0].user in text for text in tokenised) == 1


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
