"""Token ids and log-probabilities of a chat reply, where a server returns them: vLLM does if asked, others may refuse to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from msgrpo_hub.models.http_client import HTTPError, http_client

TOKENS_WANTED = {"return_token_ids": True, "logprobs": True}
"""What a chat request must say for vLLM to return them."""


class ReplyTokens(TypedDict, total=False):
    """Fields of a `Completion`."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]


def returns_tokens(models_url: str, headers: Mapping[str, str], *, proxies: bool) -> bool | None:
    """Whether a server returns token ids if asked: its list of models says that vLLM owns them. None: it did not answer."""
    try:
        response = http_client(proxies=proxies).get(models_url, headers=headers, timeout=10)
    except HTTPError:
        return None
    if response.status_code in (408, 429) or response.status_code >= 500:
        return None
    try:
        match response.json():
            case {"data": [{"owned_by": "vllm"}, *_]}:
                return True
    except (ValueError, RecursionError):  # not JSON
        pass
    return False


def reply_tokens(output: Mapping[str, Any], choice: Mapping[str, Any], *, plain: bool) -> ReplyTokens:
    """The tokens in a server's response; empty if it has none.

    Args:
        output: the response.
        choice: its reply.
        plain: whether tokens were sampled at temperature 1, or greedily, from all tokens. Otherwise log-probabilities are left
            out: by default vLLM reports them without temperature, top-k and top-p, so they are not those of the sampling.
    """
    prompt, reply = _ids(output.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    if not (prompt and reply):
        return {}
    tokens = ReplyTokens(prompt_ids=prompt, token_ids=reply)
    log_probs: list[Any] = []
    match choice.get("logprobs"):
        case {"content": [*content]}:
            log_probs = [token.get("logprob") if isinstance(token, dict) else None for token in content]
    numbers = tuple(float(value) for value in log_probs if type(value) in (int, float) and -1e9 < value < 1e-3)
    return ReplyTokens(**tokens, log_probs=numbers) if plain and len(numbers) == len(log_probs) == len(reply) else tokens


def _ids(values: Any) -> tuple[int, ...]:
    whole = isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
    return tuple(values) if whole else ()
