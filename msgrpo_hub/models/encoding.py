"""Prompts as token ids, through a tokenizer's chat template, and replies as texts, without the model's weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase

from msgrpo_hub.agent.action import is_marker
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.episode import Finish
from msgrpo_hub.models.chat_templates import template_of
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.tokenization import split_points, tokenize

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
        self._split_points = split_points(tokenizer)
        added = tokenizer.added_tokens_decoder.items()
        self._hidden = {token for token, about in added if about.special and not is_marker(about.content)}
        self._ids: dict[Prompt, TokenIds] = {}
        self._kept = 0  # token ids in it

    @property
    def turn_end(self) -> frozenset[int]:
        """The special token with which the chat template ends a reply; empty if it ends with something else."""
        text, added = self.template.turn_end.lstrip(), self.tokenizer.added_tokens_decoder
        ends = [token for token, about in added.items() if about.special and text.startswith(about.content)]
        return frozenset(sorted(ends, key=lambda token: len(added[token].content))[-1:])

    def render(self, prompts: Sequence[Prompt]) -> list[str]:
        """The prompts as texts, in one batch. If the template has no system role, the system text precedes the user's."""
        return self.template.render([prompt.messages for prompt in prompts])

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of each prompt."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._ids))
        if new and self._kept > _CAPACITY:
            self._ids, self._kept = {}, 0
            new = list(dict.fromkeys(prompts))
        if new:
            encoded = tokenize(self.tokenizer, self.render(new), self._split_points)
            self._ids.update(zip(new, encoded, strict=True))
            self._kept += sum(map(len, encoded))
        return [self._ids[prompt] for prompt in prompts]

    def decode(self, replies: Sequence[tuple[TokenIds, Finish]]) -> list[str]:
        """The texts of replies, without special tokens other than the markers of thoughts.

        A truncated reply starts with the marker of the thoughts that its prompt opened, if any: without the marker the thoughts
        would look like an answer.
        """
        visible = [[token for token in ids if token not in self._hidden] for ids, _ in replies]
        texts = self.tokenizer.batch_decode(visible, skip_special_tokens=False)
        return [
            self.template.opening + text if finish == "length" else text for text, (_, finish) in zip(texts, replies, strict=True)
        ]

    def count(self, texts: Iterable[str]) -> dict[str, int]:
        """Text → its number of tokens, outside the chat template."""
        distinct = list(dict.fromkeys(texts))
        encoded = tokenize(self.tokenizer, distinct, self._split_points) if distinct else []
        return {text: len(ids) for text, ids in zip(distinct, encoded, strict=True)}
