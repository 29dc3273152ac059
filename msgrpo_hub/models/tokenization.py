"""Converts rendered prompts to token ids; the rules that all prompts of a game share are tokenised once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from msgrpo_hub.models.sampling import TokenIds


def split_points(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str] | None:
    """A pattern of the special tokens before which a text may be split: those that absorb no neighbouring text."""
    added = tokenizer.added_tokens_decoder.values() if isinstance(tokenizer, PreTrainedTokenizerFast) else ()
    splitting = [t.content for t in added if t.special and not (t.normalized or t.lstrip or t.rstrip or t.single_word)]
    longest_first = sorted(splitting, key=len, reverse=True)  # tokenizers prefer the longest match
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if splitting else None


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], splits: re.Pattern[str] | None) -> list[TokenIds]:
    """The token ids of texts, equal to those of each whole text, with no special tokens added.

    A tokenizer processes the text between two special tokens independently. The texts are therefore split there, and a
    piece that many texts share, such as the message with the rules of a game, is tokenised once.
    """
    pieces = [_pieces(text, splits) for text in texts]
    distinct = list(dict.fromkeys(chain.from_iterable(pieces)))
    ids = dict(zip(distinct, tokenizer(distinct, add_special_tokens=False)["input_ids"], strict=True))
    return [tuple(chain.from_iterable(ids[piece] for piece in of_text)) for of_text in pieces]


def _pieces(text: str, splits: re.Pattern[str] | None) -> list[str]:
    """A text split before its special tokens.

    Each special token stays at the head of its piece, because some tokenizers treat the start of a text differently.
    """
    if splits is None:
        return [text]
    before, *rest = splits.split(text)
    return [before, *map("".join, zip(rest[::2], rest[1::2], strict=True))]
