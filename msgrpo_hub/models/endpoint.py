"""Players behind an HTTP endpoint: an OpenAI-compatible server, or an Inference Provider of Hugging Face.

A server failure is not a bad reply. A request is retried while a retry can help; after that the completion holds the error, and
its episode stops unscored.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from msgrpo_hub.agent.action import MARKER
from msgrpo_hub.agent.policy import Interrupted, Prompt
from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.downloads.names import is_http, without_secrets
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.models.chat_templates import merge_system
from msgrpo_hub.models.http_client import (
    KEY_VARIABLE,
    RequestError,
    in_threads,
    key_for,
    pause_after,
    request,
    without_secrets_of,
)

ROUTER = "https://router.huggingface.co/v1/chat/completions"
"""The server of the Inference Providers. There, a model's name may end with `:PROVIDER`."""

LONG_PAUSE = 10.0
"""Pauses of at least this many seconds are logged."""
LONGEST_PAUSE = 600.0
"""A server that asks for a longer pause, in seconds, is not asked again."""

_TRUNCATED = ("length", "max_tokens", "model_length")
"""Finish reasons of a reply cut at the token limit."""
_ENDED = ("stop", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call", *_TRUNCATED)
"""Finish reasons of a complete or truncated reply."""

REFUSALS = {
    "max_tokens": (r"\bmax_tokens\b", "requests use max_completion_tokens instead"),
    "seed": (r"\bseed\b", "requests have no seed, so a repeated run gets other replies"),
    "system role": (
        r"\bsystem\W+(role|message|prompt|instruction)s?\W+(is |are )?not\b|not support\w*\W+(the )?\W*system\b"
        r"|role\W+system\W+(is )?not\b|developer instruction is not|roles must alternate user"
        r"|only user and assistant roles|should be \W*user\W+or\W+assistant",
        "the rules precede the observation in the user's message",
    ),
}
"""Parts of a request that servers refuse → a pattern of their messages, and how requests change."""

_QUESTION: list[Message] = [{"role": "system", "content": "Answer with one word."}, {"role": "user", "content": "Are you ready?"}]

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class EndpointPolicy:
    """A model behind HTTP: one request per prompt, several at a time."""

    name: str
    """The player's name, published and quoted in errors; it contains no secret of the URL."""
    model: str
    """The name of the model on the server."""
    url: str = field(repr=False)
    """The URL of the chat completions."""
    provider: str = ""
    """The Inference Provider, if it is one."""
    temperature: float
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int
    """Largest number of tokens per reply; a truncated reply has `finish="length"`."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request, such as `top_p` or `reasoning_effort`."""
    concurrency: int = 8
    """Number of requests at the same time."""
    attempts: int = 6
    """Largest number of attempts per request."""
    timeout: float = 120.0
    """Seconds without a byte from the server after which an attempt fails."""
    backoff: float = 1.0
    """Seconds before the second attempt; later pauses are longer."""
    _refused: set[str] = field(default_factory=set, init=False, repr=False)
    """Names in `REFUSALS` that the server refuses."""
    _recorded: bool = field(default=False, init=False, repr=False)
    """Whether a run has recorded the refusals; from then on a new one is an error."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt, in order; the seed of request i comes from `rngs[i]` only.

        Raises:
            Interrupted: the server refuses a request for good. It holds the replies received so far.
        """
        seeds, stop = [int(rng.integers(2**31)) for rng in rngs], Event()
        replies: list[Completion | None] = [None] * len(prompts)

        def ask(index: int) -> Completion:
            replies[index] = reply = self._reply(prompts[index].messages, seeds[index], stop)
            return reply

        try:
            return in_threads(ask, range(len(prompts)), self.concurrency)
        except UserError as error:
            raise Interrupted(str(error), list(replies)) from error
        finally:
            stop.set()

    def refusals(self) -> list[str]:
        """The parts of a request that the server refuses. The first call finds out with a short request.

        Raises:
            UserError: the server refuses the key, the model or the settings.
        """
        if not self._recorded:
            with suppress(RequestError):
                self._ask(_QUESTION, 0)
            self._recorded = True
        return sorted(self._refused)

    def _reply(self, messages: Sequence[Message], seed: int, stop: Event) -> Completion:
        """Repeats a request until it gets a reply, no attempt is left, the server asks for too long a wait, or `stop` is set."""
        for attempt in range(1, self.attempts + 1):
            try:
                return self._ask(messages, seed)
            except RequestError as error:
                failure, pause = error, pause_after(attempt, self.backoff, error.wait)
            if attempt == self.attempts or pause > LONGEST_PAUSE:
                break
            if pause >= LONG_PAUSE:
                log.warning("%s: %s: next attempt in %.0f s", self.name, failure, pause)
            if stop.wait(pause):
                break
        asked = f" (the server asked to wait {failure.wait:.0f} s)" if failure.wait else ""
        why = f": {failure.message}" if failure.message else ""
        return Completion(text="", error=f"{failure.what} after {attempt} attempt{'s' if attempt > 1 else ''}{asked}{why}")

    def _ask(self, messages: Sequence[Message], seed: int) -> Completion:
        """One reply. If the server refuses something in `REFUSALS`, the request is changed and repeated.

        Raises:
            RequestError: no reply, and a later attempt may succeed.
            UserError: no reply, and the same request fails again.
        """
        if self.provider and not key_for(self.url):
            raise UserError(f"cannot play {self.name!r}: no Hugging Face token found; run `hf auth login`, or set HF_TOKEN")
        refused = set(self._refused)
        while True:
            body = self._body(messages, seed, refused)
            try:
                output = request("POST", self.url, body, timeout=self.timeout)
                break
            except RequestError as error:
                complaint = error.body if error.status in (400, 422, 500, 501) else ""
                with suppress(ValueError, RecursionError):  # some servers quote the request as `input`
                    complaint = str(json.loads(complaint, object_hook=lambda fields: fields | {"input": None}))
                named = [name for name, (pattern, _) in REFUSALS.items() if re.search(pattern, complaint, re.IGNORECASE)]
                change = next((name for name in named if self._body(messages, seed, refused | {name}) != body), None)
                if change and not self._recorded:
                    refused.add(change)
                    continue
                if error.is_temporary:
                    raise
                remedy = "check the URL, the name of the model and the settings, then run the same command again"
                if error.status in (401, 403):
                    remedy = f"expected a key with access, in HF_TOKEN for Hugging Face and in {KEY_VARIABLE} for other servers"
                raise UserError(f"cannot play {self.name!r} ({error.what} {error.message}): {remedy}") from error
        reply = read_reply(output, lambda text: without_secrets_of(self.url, text))
        with self._lock:
            for name in sorted(refused - self._refused):
                log.warning("%s refuses %s: %s", self.name, name, REFUSALS[name][1])
            self._refused |= refused
        return reply

    def _body(self, messages: Sequence[Message], seed: int, refused: set[str]) -> dict[str, Any]:
        return {
            "model": f"{self.model}:{self.provider}" if self.provider not in ("", "auto") else self.model,
            "messages": merge_system(messages) if "system role" in refused else list(messages),
            "stream": False,
            **({} if "seed" in refused else {"seed": seed}),
            "temperature": self.temperature,
            "max_completion_tokens" if "max_tokens" in refused else "max_tokens": self.max_new_tokens,
            **self.extra_body,
        }


def make_endpoint(
    name: str, *, temperature: float, max_new_tokens: int, concurrency: int = 8, extra_body: Mapping[str, Any] | None = None
) -> EndpointPolicy:
    """The player `endpoint:URL#MODEL` or `provider:NAME/MODEL`; the model may contain slashes.

    User, password and query of the URL are sent with every request, and left out of the published name.

    Raises:
        UserError: the name has neither form.

    >>> make_endpoint("provider:auto/Qwen/Qwen2.5-3B-Instruct", temperature=0.5, max_new_tokens=256).model
    'Qwen/Qwen2.5-3B-Instruct'
    """
    kind, _, rest = name.partition(":")
    provider, url, model = "", ROUTER, ""
    if kind == "provider":
        provider, _, model = rest.partition("/")
    elif kind == "endpoint":
        url, _, model = rest.partition("#")
    if not model or not is_http(url) or (kind == "provider" and not provider):
        redacted = re.sub(r"\?[^#]*", "?***", re.sub("//[^#]*@", "//***@", name))
        raise UserError(
            f"cannot parse the player {redacted!r}: expected endpoint:URL#MODEL, e.g. endpoint:http://localhost:8000/v1#my-model"
            ", or provider:NAME/MODEL, e.g. provider:auto/Qwen/Qwen2.5-3B-Instruct"
        )
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path.removesuffix('/v1')}/v1/chat/completions"
    return EndpointPolicy(
        name=without_secrets(name),
        model=model,
        url=parts._replace(path=path).geturl(),
        provider=provider,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        concurrency=concurrency,
        extra_body=extra_body or {},
    )


def read_reply(output: Any, shown: Any = str) -> Completion:
    """The reply in the JSON of a chat completion, with the model's thinking in front.

    A truncated or empty reply counts if its finish reason says that the model or the token limit ended it.

    Args:
        output: the response.
        shown: makes a response fit for an error message.

    Raises:
        RequestError: the response contains no reply, or the server broke the reply off.
    """
    parts = None
    match output:
        case {"choices": [{"message": {**message}} as choice, *_]}:
            parts = _parts(message.get("content"))
    if parts is None:
        quoted = (output.strip().partition("\n")[0] or "an empty body") if isinstance(output, str) else json.dumps(output)
        raise RequestError("no chat completion", message=shown(quoted))
    thinking, content = parts
    separate = (message.get(name) for name in ("reasoning_content", "reasoning"))
    thinking = next((value for value in separate if value and isinstance(value, str)), thinking)
    reason = choice.get("finish_reason")
    truncated, text = reason in _TRUNCATED, content or thinking
    if reason in ("error", "abort") or not (text or message.get("tool_calls") or reason in _ENDED):
        what = "a broken-off reply" if text else "an empty reply"
        raise RequestError(f"{what} with finish reason {plain(' '.join(str(reason or 'none').split()))[:40]}")
    if thinking:  # the start of the reply, without markers that would end it
        content = f"<think>{MARKER.sub('', thinking)}{'</think>' if content or not truncated else ''}{content}"
    usage = None
    match output.get("usage"):
        case {"prompt_tokens": int(read), "completion_tokens": int(written)}:
            usage = (read, written)
    return Completion(text=content, finish="length" if truncated else "stop", usage=usage)


def _parts(content: Any) -> tuple[str, str] | None:
    """Thinking and text of a message's content: a text, or a list of parts (OpenAI, Mistral). None if it is neither."""
    if content is None or isinstance(content, str):
        return "", content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    texts: dict[bool, str] = {True: "", False: ""}
    for part in content:
        inside = next((part[name] for name in ("thinking", "reasoning", "text") if name in part), "")
        nested = _parts(inside)  # Mistral's thinking is a list of parts again
        if nested is None:
            return None
        texts[part.get("type") in ("thinking", "reasoning")] += nested[1]
    return texts[True], texts[False]
