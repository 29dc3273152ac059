"""Lengths of prompts in tokens, for a model that is not loaded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.fetching import fetch, list_files
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.context import PromptLength
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.endpoint import EndpointPolicy
from msgrpo_hub.models.loading import load_tokenizer

CHARACTERS_PER_TOKEN = 3.0
"""Characters of the games' prompts per token of GPT's tokenizers: 3.0 to 3.2 with cl100k and o200k, by game."""


def served_tokenizer(server: EndpointPolicy, chat_template_kwargs: Mapping[str, Scalar]) -> PromptEncoder | None:
    """The tokenizer of a served model, if its name is that of a repository or a folder that can be reached; else None."""
    if not (server.provider or "/" in server.model or Path(server.model).is_dir()):
        return None
    try:
        found = fetch(list_files(server.model), weights=False)
        tokenizer, _ = load_tokenizer(found)
        return PromptEncoder(tokenizer, chat_template_kwargs)
    except UserError:
        return None


def lengths_by_characters(prompts: Sequence[Prompt]) -> list[PromptLength]:
    """The lengths of prompts as their characters suggest, rounded up."""
    return [
        PromptLength(
            fixed=round(sum(len(text) for role, text in prompt.contents if role != "assistant") / CHARACTERS_PER_TOKEN + 0.5),
            replies=sum(role == "assistant" for role, _ in prompt.contents),
        )
        for prompt in prompts
    ]
