"""Players behind an HTTP endpoint: any OpenAI-compatible server, or an Inference Provider of Hugging Face.

A failing server is not a badly playing model. A request is retried as long as a retry can help. After the last retry the
completion is an error with the server's status and message, and its episode stops unscored. A long pause is logged when it
begins, and one beyond the patience does not begin. A request that can never succeed raises `UserError` immediately.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from threading import Event, Lock
from types import MappingProxyType
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Interrupted
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.names import is_http, without_secrets
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_server import ChatServer, Failure
from msgrpo_hub.models.threads import begun

LONG_PAUSE = 10.0
"""Seconds from which a pause before the next attempt is logged."""

log = logging.getLogger(__name__)

_JITTER = random.SystemRandom()  # not one of the seeded streams: server failures must not affect results


@dataclass(frozen=True, kw_only=True)
class EndpointPolicy:
    """A model behind HTTP: one request per prompt, several at a time."""

    server: ChatServer
    """The server that answers the requests."""
    temperature: float
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int
    """Largest number of tokens per reply; a truncated reply has `finish="length"`."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a request, such as `top_p`, `reasoning_effort` or vLLM's `chat_template_kwargs`."""
    concurrency: int = 8
    """Number of requests at the same time."""
    attempts: int = 6
    """Largest number of attempts per request."""
    timeout: float = 120.0
    """Seconds without a byte from the server after which an attempt fails."""
    patience: float = 600.0
    """Seconds within which all attempts at one reply begin. An attempt goes on while the server sends, if only blanks."""
    backoff: float = 1.0
    """Seconds before the second attempt. Each further pause is twice as long, minus a random part of up to half."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt, in order; the seed of request i comes from `rngs[i]` alone.

        Raises:
            Interrupted: the server refuses a request, and a retry cannot help. It holds the replies so far.
        """
        seeds = [int(rng.integers(2**31)) for rng in rngs]
        stop, log_pause = Event(), _PauseLog(self.server.name, self.patience)
        asked = list(zip(prompts, seeds, strict=True))
        futures = begun(lambda one: self._ask(*one, stop, log_pause), asked, self.concurrency)
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()  # raises the first error, even while others still pause between attempts
            return [future.result() for future in futures]
        except UserError as error:
            raise Interrupted(str(error), [_answered(future) for future in futures]) from error
        finally:
            stop.set()
            for future in futures:
                future.cancel()

    def refusals(self) -> list[str]:
        """What the server refuses, and the policy therefore asks differently; see `ChatServer.refusals`."""
        return self.server.refusals(timeout=self.timeout, **self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "max_tokens": self.max_new_tokens, "extra_body": self.extra_body}

    def _ask(self, prompt: Prompt, seed: int, stop: Event, log_pause: _PauseLog) -> Completion:
        """Repeats a request until it gets a reply, attempts or patience run out, or `stop` is set."""
        deadline, attempt = time.monotonic() + self.patience, 1
        while isinstance(reply := self._attempt(prompt, seed, deadline), Failure):
            pause = max(reply.wait, self.backoff * 2 ** (attempt - 1) * _JITTER.uniform(0.5, 1.0))
            if attempt == self.attempts:
                return _failed(reply, attempt)
            too_long = time.monotonic() + pause >= deadline
            log_pause(reply, pause, too_long)
            if too_long or stop.wait(pause):
                return _failed(reply, attempt)
            attempt += 1
        return reply

    def _attempt(self, prompt: Prompt, seed: int, deadline: float) -> Completion | Failure:
        timeout = min(self.timeout, deadline - time.monotonic())
        return self.server.ask(prompt.messages, seed=seed, timeout=timeout, **self._settings)


def _answered(future: Future[Completion]) -> Completion | None:
    """The reply of a request, None if it has none."""
    return future.result() if future.done() and not future.cancelled() and not future.exception() else None


def _failed(last: Failure, attempts: int) -> Completion:
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    request = f" (the server asked to wait {last.wait:.0f} s)" if last.wait else ""
    return Completion(text="", error=f"{last.what} after {times}{request}" + (f": {last.message}" if last.message else ""))


@dataclass
class _PauseLog:
    """Logs the long pauses of one batch of requests: the first, and every one that is longer than those before."""

    server: str
    patience: float
    _longest: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, failure: Failure, pause: float, too_long: bool) -> None:
        """Logs a pause that begins, or that is too long to begin."""
        with self._lock:
            if pause < LONG_PAUSE or pause <= self._longest:
                return
            self._longest = pause
        why = failure.what + (f" ({failure.message})" if failure.message else "")
        if too_long and failure.wait:
            asks = f"the server asks to wait {failure.wait:.0f} s, and a reply may take {self.patience:.0f} s"
            log.warning("%s: %s: %s; episodes that need it now stop unscored", self.server, why, asks)
        elif not too_long:
            log.warning("%s: %s: next attempt in %.0f s%s", self.server, why, pause, ", as the server asks" * bool(failure.wait))


def make_endpoint(
    name: str,
    *,
    temperature: float,
    max_new_tokens: int,
    concurrency: int = 8,
    extra_body: Mapping[str, Any] = MappingProxyType({}),
) -> EndpointPolicy:
    """The player of a name: `endpoint:URL#MODEL` or `provider:NAME/MODEL`; the model may contain slashes.

    User, password and query of the URL are sent with every request, and left out of the name that is published.

    Raises:
        UserError: the name is neither, or `concurrency` is below 1.

    >>> make_endpoint("provider:auto/Qwen/Qwen2.5-3B-Instruct", temperature=0.5, max_new_tokens=256).server.model
    'Qwen/Qwen2.5-3B-Instruct'
    """
    if concurrency < 1:
        raise UserError(f"concurrency = {concurrency}: expected at least 1 request at a time")
    server = server_of(name)
    if server is None:
        redacted = re.sub(r"\?[^#]*", "?***", re.sub("//[^#]*@", "//***@", name))
        raise UserError(
            f"cannot parse the player {redacted!r}: expected endpoint:URL#MODEL, e.g. endpoint:http://localhost:8000/v1#my-model"
            ", or provider:NAME/MODEL, e.g. provider:auto/Qwen/Qwen2.5-3B-Instruct"
        )
    return EndpointPolicy(
        server=server,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        concurrency=concurrency,
        extra_body=extra_body,
    )


def server_of(name: str) -> ChatServer | None:
    """The server of a player's name; None if the name is not one of a server."""
    kind, _, rest = name.partition(":")
    if kind == "endpoint":
        url, _, model = rest.partition("#")
        return ChatServer(name=without_secrets(name), model=model, base_url=url) if model and is_http(url) else None
    provider, _, model = rest.partition("/")
    return ChatServer(name=name, model=model, provider=provider) if kind == "provider" and provider and model else None
