"""Token ids and log-probabilities of a chat reply, where a server returns them: vLLM does if asked, others may refuse to be."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypedDict
from urllib.parse import urlsplit

from huggingface_hub import is_offline_mode

TOKENS_WANTED = {"return_token_ids": True, "logprobs": True}
"""What a chat request must say for vLLM to return them."""


class ReplyTokens(TypedDict, total=False):
    """Fields of a `Completion`."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]


def returns_tokens(base_url: str | None, key: str | None) -> bool | None:
    """Whether a server returns token ids if asked: its list of models says that vLLM owns them. None: it did not answer."""
    parts = urlsplit(base_url or "")
    if not parts.hostname or parts.username or is_offline_mode():
        return False
    address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/chat/completions')}/models"
    try:
        return _is_vllm(address, parts.query, key)
    except (OSError, HTTPException):
        return None


def _is_vllm(address: str, query: str, key: str | None) -> bool:
    parts = urlsplit(address)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(str(parts.hostname), parts.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", parts.path + (f"?{query}" if query else ""), headers=headers)
        response = connection.getresponse()
        if response.status in (408, 429) or response.status >= 500:
            raise OSError(f"HTTP {response.status}")
        match json.loads(response.read()):
            case {"data": [{"owned_by": "vllm"}, *_]}:
                return True
        return False
    except (ValueError, RecursionError):  # not JSON
        return False
    finally:
        connection.close()


def reply_tokens(output: Any, choice: Any, *, plain: bool) -> ReplyTokens:
    """The tokens in a server's response; empty if it has none.

    Args:
        output: the response.
        choice: its reply.
        plain: whether tokens were sampled at temperature 1, or greedily, from all tokens. Otherwise log-probabilities are left
            out: by default vLLM reports them without temperature, top-k and top-p, so they are not those of the sampling.
    """
    prompt, reply = (_ids(getattr(of, name, None)) for of, name in ((output, "prompt_token_ids"), (choice, "token_ids")))
    if not (prompt and reply):
        return {}
    tokens = ReplyTokens(prompt_ids=prompt, token_ids=reply)
    content = getattr(getattr(choice, "logprobs", None), "content", None)
    log_probs: list[Any] = [getattr(token, "logprob", None) for token in content] if isinstance(content, list) else []
    numbers = tuple(float(value) for value in log_probs if type(value) in (int, float) and -1e9 < value < 1e-3)
    return ReplyTokens(**tokens, log_probs=numbers) if plain and len(numbers) == len(log_probs) == len(reply) else tokens


def _ids(values: Any) -> tuple[int, ...]:
    whole = isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
    return tuple(values) if whole else ()
