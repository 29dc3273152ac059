"""Players behind an HTTP endpoint: any OpenAI-compatible server, or an Inference Provider of Hugging Face.

A server that fails is not a model that plays badly. A request is repeated as long as that can help; where it does not, the
completion is an error, which stops its episode unscored. A request that can never succeed is a `UserError` at once.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from urllib.parse import urlsplit

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_server import ChatServer, Failure

_JITTER = random.SystemRandom()  # nobody's stream: how often a server fails must change nothing else


@dataclass(frozen=True, kw_only=True)
class EndpointPolicy:
    """A model that is asked over HTTP, one request per prompt, several at a time."""

    server: ChatServer
    """Whom to ask."""
    temperature: float
    """Of sampling; 0 is greedy."""
    max_new_tokens: int
    """The limit of a reply; one cut there is marked `finish="length"`."""
    concurrency: int = 8
    """How many requests are under way at a time."""
    attempts: int = 6
    """How often a request is sent at most."""
    timeout: float = 120.0
    """Seconds without a byte from the server after which an attempt has failed."""
    patience: float = 600.0
    """Seconds for all attempts at one reply together, pauses included."""
    backoff: float = 1.0
    """Seconds before the second attempt; each further pause is twice as long, and up to half is taken off by chance."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt, in order; the seed that request i carries comes from `rngs[i]` alone.

        Raises:
            UserError: the server refuses a request in a way that asking again cannot mend.
        """
        seeds = [int(rng.integers(2**31)) for rng in rngs]
        pool, stop = ThreadPoolExecutor(self.concurrency), Event()
        try:
            asked = [pool.submit(self._ask, prompt, seed, stop) for prompt, seed in zip(prompts, seeds, strict=True)]
            for future in wait(asked, return_when=FIRST_EXCEPTION).done:
                future.result()  # raises the first error, even where others still pause between attempts
            return [future.result() for future in asked]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, prompt: Prompt, seed: int, stop: Event) -> Completion:
        """Repeats a request until it is answered, attempts or patience are used up, or `stop` is set."""
        deadline, attempt = time.monotonic() + self.patience, 1
        while isinstance(reply := self._attempt(prompt, seed, deadline), Failure):
            pause = max(reply.wait, self.backoff * 2 ** (attempt - 1) * _JITTER.uniform(0.5, 1.0))
            if attempt == self.attempts or time.monotonic() + pause >= deadline or stop.wait(pause):
                return _failed(reply, attempt)
            attempt += 1
        return reply

    def _attempt(self, prompt: Prompt, seed: int, deadline: float) -> Completion | Failure:
        return self.server.ask(
            prompt.messages,
            seed=seed,
            temperature=self.temperature,
            max_tokens=self.max_new_tokens,
            timeout=min(self.timeout, deadline - time.monotonic()),
        )


def _failed(last: Failure, attempts: int) -> Completion:
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    wish = f" (it asks to wait {last.wait:.0f} s)" if last.wait else ""
    return Completion(text="", error=f"{last.what} after {times}{wish}" + (f": {last.said}" if last.said else ""))


def make_endpoint(name: str, *, temperature: float, max_new_tokens: int) -> EndpointPolicy:
    """The player of a name: `endpoint:URL#MODEL` or `provider:NAME/MODEL`, where the model may hold slashes.

    Raises:
        UserError: the name is neither. A URL with a user or password counts as neither, since names are published.

    >>> make_endpoint("provider:auto/Qwen/Qwen2.5-3B-Instruct", temperature=0.5, max_new_tokens=256).server.model
    'Qwen/Qwen2.5-3B-Instruct'
    """
    server = _server(name)
    if server is None:
        shown = re.sub("//[^#]*@", "//***@", name)
        raise UserError(
            f"cannot read the player {shown!r}: expected endpoint:URL#MODEL, as endpoint:http://localhost:8000/v1#my-model "
            "(no user or password in the URL), or provider:NAME/MODEL, as provider:auto/Qwen/Qwen2.5-3B-Instruct"
        )
    return EndpointPolicy(server=server, temperature=temperature, max_new_tokens=max_new_tokens)


def _server(name: str) -> ChatServer | None:
    kind, _, rest = name.partition(":")
    if kind == "endpoint":
        url, _, model = rest.partition("#")
        return ChatServer(name=name, model=model, base_url=url) if model and _is_http(url) else None
    provider, _, model = rest.partition("/")
    return ChatServer(name=name, model=model, provider=provider) if kind == "provider" and provider and model else None


def _is_http(url: str) -> bool:
    """Whether a URL can be asked: http or https, a host, no credentials, nothing that cannot stand in a URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no port
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
