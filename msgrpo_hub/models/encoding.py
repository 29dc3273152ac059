"""Prompts as token ids: through a tokenizer's chat template, without the model's weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jinja2
from transformers import PreTrainedTokenizerBase

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.models.loading import render
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.tokenization import split_points, tokenize

_CAPACITY = 100_000
"""Prompts whose token ids are kept."""


class PromptEncoder:
    """Renders prompts and converts them to token ids; equal prompts are encoded once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._system_role = _takes_system_role(tokenizer)
        self._split_points = split_points(tokenizer)
        self._ids: dict[Prompt, TokenIds] = {}

    def render(self, prompt: Prompt) -> str:
        """The prompt as text. If the template has no system role, the system text is prepended to the user message."""
        return render(self.tokenizer, prompt.messages if self._system_role else _merge_system(prompt.messages))

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of each prompt."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._ids))
        if new and len(self._ids) > _CAPACITY:
            self._ids.clear()
            new = list(dict.fromkeys(prompts))
        if new:
            encoded = tokenize(self.tokenizer, [self.render(prompt) for prompt in new], self._split_points)
            self._ids.update(zip(new, encoded, strict=True))
        return [self._ids[prompt] for prompt in prompts]

    def count(self, texts: Iterable[str]) -> dict[str, int]:
        """Text → its number of tokens, outside the chat template."""
        distinct = list(dict.fromkeys(texts))
        encoded = tokenize(self.tokenizer, distinct, self._split_points) if distinct else []
        return {text: len(ids) for text, ids in zip(distinct, encoded, strict=True)}


def _merge_system(messages: list[Message]) -> list[Message]:
    """Messages for a template without a system role: each system text is prepended to the next user message."""
    merged: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if message["role"] == "system":
            pending.append(message["content"])
            continue
        if pending and message["role"] == "user":
            merged.append({"role": "user", "content": "\n\n".join([*pending, message["content"]])})
        else:
            merged += [*_as_user(pending), message]
        pending = []
    return merged + _as_user(pending)


def _as_user(texts: list[str]) -> list[Message]:
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []


def _takes_system_role(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the chat template accepts a system message and renders it."""
    messages = [{"role": "system", "content": "a marker"}, {"role": "user", "content": "a question"}]
    try:
        return "a marker" in render(tokenizer, messages)
    except (jinja2.TemplateError, ValueError):
        return False
