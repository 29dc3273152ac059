"""Prompts as token ids: through a tokenizer's chat template, without the model's weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.play_settings import Scalar
from msgrpo_hub.models.chat_templates import template_of
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.tokenization import split_points, tokenize

_CAPACITY = 5_000_000
"""Token ids that are kept at most before a batch is encoded; each takes some 40 bytes."""


class PromptEncoder:
    """Renders prompts and converts them to token ids; equal prompts are encoded once.

    Args:
        tokenizer: the tokenizer, with a chat template.
        chat_template_kwargs: variables of the chat template, such as `enable_thinking`.
        source: what the template came from, for messages; by default the tokenizer's model.
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
        self._ids: dict[Prompt, TokenIds] = {}
        self._kept = 0  # token ids in it

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

    def count(self, texts: Iterable[str]) -> dict[str, int]:
        """Text → its number of tokens, outside the chat template."""
        distinct = list(dict.fromkeys(texts))
        encoded = tokenize(self.tokenizer, distinct, self._split_points) if distinct else []
        return {text: len(ids) for text, ids in zip(distinct, encoded, strict=True)}
