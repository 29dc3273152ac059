"""Tokens of replies: they must say the stored text, where the tokenizer of the base lies on this machine.

Only `tokenizers` is loaded, no model library. Texts are compared without their whitespace, since tokenizers differ in what they
add or remove between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from msgrpo_hub.agent.action import is_marker, without_opening
from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.downloads.names import POCKET, content_hash, pocket_path
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.storage.tables import Origin

TOKENIZER = "tokenizer.json"


class LocalTokenizer:
    """A tokenizer of this machine that decodes equal tokens once."""

    def __init__(self, path: Path) -> None:
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        self._decoded: dict[tuple[tuple[int, ...], bool], str] = {}

    def decode(self, ids: tuple[int, ...], *, special: bool = False) -> str | None:
        """The text of tokens without whitespace; None for ids that are no tokens. `special` keeps all special tokens."""
        if not all(0 <= token < self.tokenizer.get_vocab_size() for token in set(ids)):
            return None
        if (ids, special) not in self._decoded:
            kept = [token for token in ids if special or token not in self._hidden]
            self._decoded[ids, special] = _squeezed(self.tokenizer.decode(kept, skip_special_tokens=False))
        return self._decoded[ids, special]

    @cached_property
    def _hidden(self) -> frozenset[int]:
        """Special tokens that the text of a reply leaves out."""
        added = self.tokenizer.get_added_tokens_decoder().items()
        return frozenset(token for token, about in added if about.special and not is_marker(about.content))


def _squeezed(text: str) -> str:
    return "".join(text.split())


@cache
def local_tokenizer(base: str | None, commit: str | None) -> LocalTokenizer | None:
    """The tokenizer of a model at a commit: that of the built-in base, or one in the cache of the Hub. None without either."""
    if base == POCKET:
        return LocalTokenizer(pocket_path() / TOKENIZER) if content_hash(pocket_path()) == commit else None
    if base is None or commit is None or not re.fullmatch("[0-9a-f]{40}", commit):
        return None
    try:
        path = try_to_load_from_cache(base, TOKENIZER, revision=commit)
    except ValueError:  # not the name of a repository
        return None
    return LocalTokenizer(Path(path)) if isinstance(path, str) else None


def _tokenizer(origin: Origin) -> LocalTokenizer | None:
    """The tokenizer beside an adapter from the Hub if it has one, else that of the base."""
    beside = local_tokenizer(origin.adapter, origin.adapter_revision)
    return beside or local_tokenizer(origin.base, origin.base_revision)


def unchecked_tokens(origin: Origin | None, episode: Episode) -> list[str]:
    """Whether the tokens of an episode's replies cannot be checked, as readable messages; only a model's replies have tokens."""
    if origin is None:
        return ["tokens not checked: the file does not say what model they are of"]
    if origin.base is None:
        return []
    if any(step.completion.reply_tokens is None for step in episode.steps):
        return ["tokens not checked: the file has none"]
    if _tokenizer(origin) is None:
        return [f"tokens not checked: the tokenizer of {origin.base} is not on this machine at that commit"]
    return []


def token_problems(origin: Origin, reply: Completion, prompt: Sequence[Message] | None) -> list[str]:
    """What disagrees between the tokens, the text and the token limit of a model's reply, as readable messages.

    Args:
        origin: the player's base and token limit; without a base there is nothing to check.
        reply: the reply, with its tokens or with their number alone.
        prompt: the messages that it answers; None if their format is not built in.
    """
    if origin.base is None:
        return []
    tokenizer = _tokenizer(origin)
    return [*_limit_problems(origin, reply), *(_id_problems(tokenizer, reply, prompt) if reply.prompt_ids else [])]


def _limit_problems(origin: Origin, reply: Completion) -> list[str]:
    """A model that samples stops at an end token, or at the limit. One that scores given replies has no limit."""
    written, limit = reply.reply_tokens, origin.max_new_tokens
    if written is None or limit is None:
        return []
    fits = written == limit if reply.finish == "length" else written <= limit
    return [] if fits else [f"its reply has {written} tokens and finish {reply.finish}, its limit is {limit}"]


def _id_problems(tokenizer: LocalTokenizer | None, reply: Completion, prompt: Sequence[Message] | None) -> list[str]:
    lengths = {len(values) for values in (reply.token_ids, reply.log_probs, reply.entropies or reply.log_probs)}
    messages = [] if len(lengths) == 1 else ["its tokens, log-probabilities and entropies differ in number"]
    if tokenizer and tokenizer.decode(reply.token_ids) not in [_squeezed(text) for text in (reply.text, _sampled_text(reply))]:
        messages.append("its tokens do not say its reply")
    if tokenizer and prompt and not _contains(tokenizer.decode(reply.prompt_ids, special=True), prompt):
        messages.append("the tokens of its prompt do not say the prompt")
    return messages


def _sampled_text(reply: Completion) -> str:
    """The text of a reply without the opening marker that its prompt may have ended with, which only a cut reply has."""
    return without_opening(reply.text) if reply.finish == "length" else reply.text


def _contains(text: str | None, prompt: Sequence[Message]) -> bool:
    """Whether a rendered prompt has the rules and observations in their order. Templates may shorten earlier replies."""
    parts = [re.escape(_squeezed(message["content"])) for message in prompt if message["role"] != "assistant"]
    return text is not None and re.search(".*?".join(parts), text, re.DOTALL) is not None
