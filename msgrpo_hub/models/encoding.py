"""Prompts as token ids, through a tokenizer's chat template, and replies as texts, without the model's weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from msgrpo_hub.agent.action import is_marker
from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.episode import Finish
from msgrpo_hub.models.chat_templates import template_of
from msgrpo_hub.models.sampling import TokenIds

_CAPACITY = 5_000_000
"""Number of cached token ids at which the cache is emptied; each takes about 40 bytes."""


class PromptEncoder:
    """Renders prompts and converts them to token ids; equal prompts are encoded once. Decodes replies.

    Args:
        tokenizer: the tokenizer, with a chat template.
        chat_template_kwargs: variables of the chat template, such as `enable_thinking`.
        source: the origin of the template, for messages; by default the tokenizer's model.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        chat_template_kwargs: Mapping[str, Scalar] = MappingProxyType({}),
        source: str = "",
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template_of(tokenizer, source or tokenizer.name_or_path, chat_template_kwargs)
        special = {token: about.content for token, about in tokenizer.added_tokens_decoder.items() if about.special}
        ends = [token for token, text in special.items() if self.template.turn_end.lstrip().startswith(text)]
        self.turn_end = frozenset(sorted(ends, key=lambda token: len(special[token]))[-1:])
        """The special token with which the chat template ends a reply; empty if it ends with something else."""
        self._hidden = {token for token, text in special.items() if not is_marker(text)}
        self._split_points = split_points(tokenizer)
        self._ids: dict[Prompt, TokenIds] = {}
        self._kept = 0  # token ids in it

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of each prompt."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._ids))
        if new and self._kept > _CAPACITY:
            self._ids, self._kept = {}, 0
            new = list(dict.fromkeys(prompts))
        if new:
            texts = self.template.render([prompt.messages for prompt in new])
            self._ids.update(zip(new, tokenize(self.tokenizer, texts, self._split_points), strict=True))
            self._kept += sum(len(self._ids[prompt]) for prompt in new)
        return [self._ids[prompt] for prompt in prompts]

    def decode(self, replies: Sequence[tuple[TokenIds, Finish]]) -> list[str]:
        """The texts of replies, without special tokens other than the markers of thoughts.

        A truncated reply starts with the marker of the thoughts that its prompt opened, if any: without the marker the thoughts
        would look like an answer.
        """
        visible = [[token for token in ids if token not in self._hidden] for ids, _ in replies]
        texts = zip(replies, self.tokenizer.batch_decode(visible, skip_special_tokens=False), strict=True)
        return [self.template.opening + text if finish == "length" else text for (_, finish), text in texts]

    def count(self, texts: Iterable[str]) -> dict[str, int]:
        """Text → its number of tokens, outside the chat template."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, map(len, tokenize(self.tokenizer, distinct, self._split_points)), strict=True))


def split_points(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str] | None:
    """A pattern of the special tokens before which a text may be split: they absorb no neighbouring text."""
    added = tokenizer.added_tokens_decoder.values() if isinstance(tokenizer, PreTrainedTokenizerFast) else ()
    splitting = [t.content for t in added if t.special and not (t.normalized or t.lstrip or t.rstrip or t.single_word)]
    longest_first = sorted(splitting, key=len, reverse=True)  # tokenizers prefer the longest match
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if splitting else None


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], splits: re.Pattern[str] | None) -> list[TokenIds]:
    """The token ids of texts, each as if it were tokenised whole, with no special tokens added.

    A tokenizer processes the text between two special tokens independently. The texts are therefore split there, and a
    piece that many texts share, such as the message with the rules of a game, is tokenised once. Each special token stays at
    the head of its piece, because some tokenizers treat the start of a text differently.
    """
    pieces = []
    for text in texts:
        before, *rest = splits.split(text) if splits else [text]
        pieces.append([before, *map("".join, zip(rest[::2], rest[1::2], strict=True))])
    distinct = list(dict.fromkeys(chain.from_iterable(pieces)))
    encoded = tokenizer(distinct, add_special_tokens=False)["input_ids"] if distinct else []
    ids = dict(zip(distinct, encoded, strict=True))
    return [tuple(chain.from_iterable(ids[piece] for piece in of_text)) for of_text in pieces]
