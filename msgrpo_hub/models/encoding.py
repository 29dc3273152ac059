"""Prompts as token ids, through a tokenizer's chat template, and replies as texts, without the model's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase

from msgrpo_hub.agent.action import MARKER
from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.episode import Finish
from msgrpo_hub.models.chat_templates import template_of
from msgrpo_hub.models.sampling import TokenIds

CAPACITY = 5_000_000
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
        self._hidden = {token for token, text in special.items() if text != "<|channel|>" and not MARKER.fullmatch(text)}
        self._ids: dict[Prompt, TokenIds] = {}

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of each prompt."""
        known = self._ids  # another thread may empty the cache
        if any(prompt not in known for prompt in prompts) and sum(map(len, known.values())) > CAPACITY:
            known = self._ids = {}
        if new := list(dict.fromkeys(prompt for prompt in prompts if prompt not in known)):
            texts = self.template.render([prompt.messages for prompt in new])
            encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            known.update(zip(new, map(tuple, encoded), strict=True))
        return [known[prompt] for prompt in prompts]

    def decode(self, replies: Sequence[tuple[TokenIds, Finish]]) -> list[str]:
        """The texts of replies, without special tokens other than the markers of thoughts.

        A truncated reply starts with the marker of the thoughts that its prompt opened, if any: without the marker the thoughts
        would look like an answer.
        """
        visible = [[token for token in ids if token not in self._hidden] for ids, _ in replies]
        texts = zip(replies, self.tokenizer.batch_decode(visible, skip_special_tokens=False), strict=True)
        return [self.template.opening + text if finish == "length" else text for (_, finish), text in texts]
