"""Rendered prompts to token ids, with the rules that all prompts of a game share read once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from msgrpo_hub.models.sampling import TokenIds


def split_points(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str] | None:
    """Finds the special tokens before which a text may be cut: those that take nothing of the text beside them."""
    added = tokenizer.added_tokens_decoder.values() if isinstance(tokenizer, PreTrainedTokenizerFast) else ()
    cutting = [t.content for t in added if t.special and not (t.normalized or t.lstrip or t.rstrip or t.single_word)]
    longest_first = sorted(cutting, key=len, reverse=True)  # as tokenizers choose between two that begin alike
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if cutting else None


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], cutting: re.Pattern[str] | None) -> list[TokenIds]:
    """The token ids of texts, as the tokenizer gives them for each whole text, with nothing added.

    A tokenizer looks at what stands between two special tokens by itself. So the texts are cut there, and a piece that many
    of them share, such as the message with the rules of a game, is tokenised once.
    """
    pieces = [_pieces(text, cutting) for text in texts]
    distinct = list(dict.fromkeys(chain.from_iterable(pieces)))
    ids = dict(zip(distinct, tokenizer(distinct, add_special_tokens=False)["input_ids"], strict=True))
    return [tuple(chain.from_iterable(ids[piece] for piece in of_text)) for of_text in pieces]


def _pieces(text: str, cutting: re.Pattern[str] | None) -> list[str]:
    """A text cut before its special tokens. They stay at the head of their pieces: some tokenizers treat the beginning of
    a text unlike its middle."""
    if cutting is None:
        return [text]
    before, *rest = cutting.split(text)
    return [before, *map("".join, zip(rest[::2], rest[1::2], strict=True))]
