"""One chat request to an OpenAI-compatible server: a reply, a temporary failure, or a `UserError`."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from itertools import groupby
from operator import itemgetter
from threading import Lock
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from huggingface_hub import get_token, is_offline_mode

from msgrpo_hub.agent.action import as_thought
from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.models.chat_templates import merge_system
from msgrpo_hub.models.http_client import HTTPError, http_client
from msgrpo_hub.models.served_tokens import TOKENS_WANTED, reply_tokens, returns_tokens

KEY_VARIABLE = "MSGRPO_ENDPOINT_KEY"
"""The environment variable with the key for servers outside Hugging Face."""

ROUTER = "https://router.huggingface.co/v1"
"""The server of the Inference Providers. There, a model's name may end with `:PROVIDER`."""

log = logging.getLogger(__name__)


def server_key() -> str:
    """The key for servers outside Hugging Face; empty if there is none. Raises `UserError` if no header can hold it."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{KEY_VARIABLE} holds a character that no key has: expected the key as the server was given it")
    return key


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a request got no reply, when a retry may help."""

    what: str
    """A short description, such as `HTTP 503`."""
    message: str = ""
    """The message of the server."""
    wait: float = 0.0
    """Seconds to wait, as the server asks."""


GARBAGE = Failure(what="no chat completion")

_ENDED = ("stop", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call")
"""Finish reasons of a reply that the model ended."""

_TRUNCATED = ("length", "max_tokens", "model_length")
"""Finish reasons of a reply that was truncated at the token limit."""

_BROKEN_OFF = ("error", "abort")
"""Finish reasons of a reply that the server broke off. It is a failure, whatever the response contains."""

REFUSALS = {
    "max_tokens": (r"\bmax_tokens\b", "requests have max_completion_tokens instead"),
    "seed": (r"\bseed\b", "requests have no seed, and a repeated run gets other replies"),
    "logprobs": (r"\blogprobs\b|\breturn_token_ids\b", "replies are stored without their tokens"),
    "system role": (
        r"\bsystem\W+(role|message|prompt|instruction)s?\W+(is |are )?not\b|not support\w*\W+(the )?\W*system\b"
        r"|role\W+system\W+(is )?not\b|developer instruction is not|roles must alternate user"
        r"|only user and assistant roles|should be \W*user\W+or\W+assistant",
        "the rules precede the observation in the user's message",
    ),
}
"""What servers refuse → a pattern of their messages, and how requests are changed."""

_QUESTION: list[Message] = [{"role": "system", "content": "Answer with one word."}, {"role": "user", "content": "Are you ready?"}]


@dataclass
class _Known:
    """What a server has said about requests."""

    refused: set[str] = field(default_factory=set)
    """Names in `REFUSALS`."""
    settled: bool = False
    """Whether nothing is added to it any more, as a run has recorded it."""
    returns_tokens: bool | None = None
    """Whether it returns token ids if asked; None until it has said so."""
    silent_since: float = -60.0
    """When it did not say so."""
    lock: Lock = field(default_factory=Lock)


@dataclass(frozen=True, kw_only=True)
class ChatServer:
    """A model behind a URL or an Inference Provider. The object holds no key and no connection."""

    name: str
    """The name of the player, which is published and quoted in every error. It holds no secret of the URL."""
    model: str
    """The name of the model on the server."""
    base_url: str | None = field(default=None, repr=False)
    """The server: a base URL such as http://localhost:8000/v1, or a full URL that ends with /chat/completions."""
    provider: str | None = None
    """An Inference Provider, instead of a server."""
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    def ask(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        temperature: float,
        max_tokens: int,
        timeout: float,
        extra_body: Mapping[str, Any] = MappingProxyType({}),
    ) -> Completion | Failure:
        """Asks for one reply. A request fails after `timeout` seconds without a byte.

        If the server refuses something in `REFUSALS`, the request is changed and repeated. If that succeeds, later requests are
        changed in the same way.

        Raises:
            UserError: a retry cannot help: the key, the model, the URL or the settings are refused.
        """
        key, local = self.key(), _is_local(self.base_url)
        if is_offline_mode() and not local:
            raise self._error("HF_HUB_OFFLINE forbids every request to another machine", "unset it to play over HTTP")
        if self.provider and not key:
            raise self._error("no Hugging Face token was found", "run `hf auth login`, or set HF_TOKEN")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        fields = {"seed": seed, "temperature": temperature, "max_tokens": max_tokens, **extra_body}
        if self._may_return_tokens(headers, proxies=not local):
            fields = TOKENS_WANTED | fields
        url, refused = self._url("/chat/completions"), set(self._known.refused)
        client, redirects = http_client(proxies=not local), not is_offline_mode()
        while True:
            body = self._body(messages, fields, refused)
            try:
                response = client.post(
                    url, content=json.dumps(body), headers=headers, timeout=timeout, follow_redirects=redirects
                )
            except HTTPError as error:  # only the type: the text may quote a header
                return Failure(what=f"no response ({type(error).__name__})")
            complaint = _complaint(response.text) if response.status_code in (400, 422, 500, 501) else ""
            further = [name for name, (pattern, _) in REFUSALS.items() if re.search(pattern, complaint, re.IGNORECASE)]
            change = next((name for name in further if self._body(messages, fields, refused | {name}) != body), None)
            if change is None or self._known.settled:
                break
            refused.add(change)
        if not response.is_success:
            return self._http_failure(response.status_code, response.headers, self._line(response.text, key))
        try:
            output = response.json()
        except (ValueError, RecursionError):
            output = None
        plain_sampling = temperature in (0, 1) and not extra_body.keys() - {"chat_template_kwargs", "reasoning_effort"}
        reply = read_reply(output, plain_sampling=plain_sampling)
        if reply == GARBAGE:
            shown = response.text if output else response.text.strip().partition("\n")[0]
            return Failure(what=GARBAGE.what, message=self._line(shown, key) or "an empty body")
        if isinstance(reply, Completion):
            self._remember(refused)
        return reply

    def refusals(self, **settings: Any) -> list[str]:
        """What the server refuses, of `REFUSALS`: the first call asks it by a short request. After it, a refusal is an error.

        Args:
            settings: those of `ask`.

        Raises:
            UserError: as for `ask`.
        """
        if not self._known.settled:
            self.ask(_QUESTION, seed=0, **settings)
            self._known.settled = True
        return sorted(self._known.refused)

    def _remember(self, refused: set[str]) -> None:
        with self._known.lock:
            for name in sorted(refused - self._known.refused):
                log.warning("%s refuses %s: %s", self.name, name, REFUSALS[name][1])
            self._known.refused |= refused

    def _body(self, messages: Sequence[Message], fields: Mapping[str, Any], refused: set[str]) -> dict[str, Any]:
        model = f"{self.model}:{self.provider}" if self.provider not in (None, "auto") else self.model
        left_out = {"seed"} & refused | (TOKENS_WANTED.keys() if "logprobs" in refused else set())
        body = {"model": model, "messages": list(messages), "stream": False}
        body |= {name: value for name, value in fields.items() if name not in left_out}
        if "max_tokens" in refused:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if "system role" in refused:
            body["messages"] = merge_system(messages)
        return body

    def _url(self, route: str) -> str:
        parts = urlsplit(self.base_url or ROUTER)
        path = parts.path.rstrip("/")
        base = path.removesuffix("/chat/completions") if path.endswith("/chat/completions") else path.removesuffix("/v1") + "/v1"
        return parts._replace(path=base + route).geturl()

    def _may_return_tokens(self, headers: Mapping[str, str], *, proxies: bool) -> bool:
        """Whether the server is asked for token ids. One that did not say is asked again, at most once a minute."""
        known = self._known
        with known.lock:  # whoever asks first asks for all
            if known.returns_tokens is None and time.monotonic() >= known.silent_since + 60:
                known.returns_tokens = not self.provider and returns_tokens(self._url("/models"), headers, proxies=proxies)
                known.silent_since = time.monotonic()
        return bool(known.returns_tokens)

    def key(self) -> str:
        """The key to send; empty if there is none. The Hugging Face token goes only to Hugging Face."""
        if self.base_url is None or _is_hugging_face(self.base_url):
            return get_token() or ""
        return server_key()

    def _http_failure(self, status: int, headers: Any, message: str) -> Failure:
        if status in (408, 429) or status >= 500:
            return Failure(what=f"HTTP {status}", message=message, wait=seconds_to_wait(headers.get("Retry-After", "")))
        remedy = "check the URL, the name of the model and the settings, then run the same command again"
        if status in (401, 403):
            remedy = f"expected a key with access, in HF_TOKEN for Hugging Face and in {KEY_VARIABLE} for other servers"
        raise self._error(f"HTTP {status} {message}", remedy)

    def _line(self, text: str, key: str) -> str:
        """A server message on one line, without key and secrets, and at most 200 characters long."""
        line = plain(" ".join(text.split()))
        for secret in (key, *_secrets(self.base_url or "")):
            line = without_key(line, secret)
        return line[:200]

    def _error(self, why: str, remedy: str) -> UserError:
        return UserError(f"cannot play {self.name!r} ({why.strip()}): {remedy}")


def read_reply(output: Any, *, plain_sampling: bool = False) -> Completion | Failure:
    """The reply in the JSON of a chat completion, with its thinking put back in front, and its tokens if there are any.

    A reply counts as the model's even if it was truncated before its first visible word, or holds only thinking or a tool
    call. An empty response is a reply if its finish reason says that the model ended it, or the token limit.
    """
    match output:
        case {"choices": [{"message": {**message}} as choice, *_]}:
            parts = _parts(message.get("content"))
        case _:
            return GARBAGE
    if parts is None:
        return GARBAGE
    thinking, content = parts
    of_its_own = (message.get(name) for name in ("reasoning_content", "reasoning"))
    thinking = next((value for value in of_its_own if value and isinstance(value, str)), thinking)
    reason, truncated = choice.get("finish_reason"), choice.get("finish_reason") in _TRUNCATED
    if reason in _BROKEN_OFF or not (content or thinking or message.get("tool_calls") or truncated or reason in _ENDED):
        what = "a broken-off reply" if content or thinking else "an empty reply"
        return Failure(what=f"{what} with finish reason {plain(' '.join(str(reason or 'none').split()))[:40]}")
    if thinking:
        content = as_thought(thinking, closed=bool(content) or not truncated) + content
    usage = None
    match output.get("usage"):
        case {"prompt_tokens": int(read), "completion_tokens": int(written)}:
            usage = (read, written)
    tokens = reply_tokens(output, choice, plain=plain_sampling)
    return Completion(text=content, finish="length" if truncated else "stop", usage=usage, **tokens)


def _parts(content: Any) -> tuple[str, str] | None:
    """Thinking and text of a message's content: a text, or a list of parts (OpenAI, Mistral). None if it is neither."""
    if content is None or isinstance(content, str):
        return "", content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    texts: dict[bool, str] = {True: "", False: ""}
    for part in content:
        is_thinking = part.get("type") in ("thinking", "reasoning")
        inside = next((part[name] for name in ("thinking", "reasoning", "text") if name in part), "")
        nested = _parts(inside)  # Mistral's thinking is a list of parts again
        if nested is None:
            return None
        texts[is_thinking] += nested[1]
    return texts[True], texts[False]


def _complaint(text: str) -> str:
    """What an error says, without the request that some servers quote in it as `input`."""
    try:
        return str(json.loads(text, object_hook=lambda values: {k: v for k, v in values.items() if k != "input"}))
    except (ValueError, RecursionError):
        return text


def seconds_to_wait(retry_after: str) -> float:
    """Seconds of a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3); 0 if it cannot be parsed.

    >>> seconds_to_wait("2.5"), seconds_to_wait("Wed, 21 Oct 2015 07:28:00 GMT"), seconds_to_wait("soon")
    (2.5, 0.0, 0.0)
    """
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0


def _is_hugging_face(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith((".huggingface.co", ".huggingface.cloud"))


def _is_local(url: str | None) -> bool:
    """Whether a URL is one of this machine."""
    host = urlsplit(url or "").hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _secrets(url: str) -> list[str]:
    """What `without_secrets` leaves out, as a server may quote it. Values shorter than `_PART` are no secrets."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    sent = b64encode(f"{user}:{password}".encode()).decode()  # RFC 7617
    return [text for text in (sent, user, password, *(value for _, value in parse_qsl(parts.query))) if len(text) >= _PART]


_PART = 6
"""Characters in a row that give a part of a key away."""


def without_key(text: str, key: str | None) -> str:
    """A text in which every part of a key is replaced: servers quote it whole, shortened or with its middle hidden.

    >>> without_key("not with Bearer sk-very-secret, sk-very-… or …y-secret", "sk-very-secret")
    'not with Bearer ***, ***… or …***'
    """
    if not key:
        return text
    parts = {key[i : i + _PART] for i in range(max(1, len(key) - _PART + 1))}
    hidden = [False] * len(text)
    for i in range(len(text)):
        if text[i : i + _PART] in parts or (len(key) < _PART and text.startswith(key, i)):
            length = min(_PART, len(key))
            hidden[i : i + length] = [True] * length
    runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
    return "".join("***" if is_key else "".join(c for c, _ in run) for is_key, run in runs)
