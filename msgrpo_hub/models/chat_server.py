"""One chat request over HTTP with `huggingface_hub.InferenceClient`: a reply, a temporary failure, or a `UserError`."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import groupby
from json import JSONDecodeError
from operator import itemgetter
from threading import Lock
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from huggingface_hub import (
    ChatCompletionOutput,
    ChatCompletionOutputComplete,
    ChatCompletionOutputMessage,
    ChatCompletionOutputUsage,
    InferenceClient,
    get_token,
)
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

from msgrpo_hub.agent.prompt_formats import Message
from msgrpo_hub.episode import Completion, Finish
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.models.served_tokens import TOKENS_WANTED, reply_tokens, returns_tokens

KEY_VARIABLE = "MSGRPO_ENDPOINT_KEY"
"""The environment variable with the key for servers outside Hugging Face."""


def server_key() -> str:
    """The key for servers outside Hugging Face; empty if there is none. Raises `UserError` if no header can hold it."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{KEY_VARIABLE} holds a character that no key has: expected the key as the server was given it")
    return key


_NO_KEY = "no-key"  # without a key, the client would send the Hugging Face token to any server


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a request got no reply, when a retry may help."""

    what: str
    """A short description, such as `HTTP 503`."""
    message: str = ""
    """The message of the server."""
    wait: float = 0.0
    """Seconds to wait, as the server asks."""


_ASKING = Lock()
"""Whoever asks a server first whether it returns token ids asks for all."""

GARBAGE = Failure(what="an invalid chat completion")

_ENDED = ("stop", "eos_token", "stop_sequence", "end_turn", "length", "tool_calls", "function_call")
"""Finish reasons of a reply that the model ended, or the token limit. An empty response with another one is a failure."""

_BROKEN_OFF = ("error", "abort")
"""Finish reasons of a reply that the server broke off. It is a failure, whatever the response contains."""


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
    _returns_tokens: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    """What the server said about token ids; empty until it has answered."""
    _silent: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    """When it was asked and did not answer."""

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
        """Sends one request, which fails after `timeout` seconds without a byte.

        Raises:
            UserError: a retry cannot help: the key, the model, the URL or the settings are refused.
        """
        key = self.key()
        if self._may_return_tokens(key):
            extra_body = {**TOKENS_WANTED, **extra_body}
        client = InferenceClient(base_url=self.base_url, provider=cast(Any, self.provider), token=key, timeout=timeout)
        try:
            with client:
                output = client.chat_completion(
                    [dict(message) for message in messages],
                    model=self.model,
                    seed=seed,
                    temperature=temperature,
                    max_tokens=max_tokens,
                    extra_body=dict(extra_body) or None,
                )
        except OfflineModeIsEnabled:
            raise self._refused("HF_HUB_OFFLINE forbids every request", "unset it to play over HTTP") from None
        except (HTTPError, ValueError, RecursionError, AttributeError, TypeError) as error:
            # HTTPError is the base class of the errors of httpx or httpx2, depending on huggingface_hub. The client raises the
            # last two when it cannot read the body of an error.
            if (response := _response(error)) is not None:
                return self._http_failure(response.status_code, response.headers, self._line(response.text, key))
            return self._other_failure(error, key)
        plain_sampling = temperature in (0, 1) and not {"top_k", "top_p", "min_p"} & {*extra_body}
        return read_reply(output, plain_sampling=plain_sampling)

    def _may_return_tokens(self, key: str | None) -> bool:
        """Whether the server is asked for token ids. One that did not say is asked again, at most once a minute."""
        with _ASKING:
            if not self._returns_tokens and (not self._silent or time.monotonic() >= self._silent[-1] + 60):
                if (answer := returns_tokens(self.base_url, key)) is None:
                    self._silent.append(time.monotonic())
                else:
                    self._returns_tokens.append(answer)
        return any(self._returns_tokens)

    def key(self) -> str | None:
        """The key to send. The Hugging Face token goes only to Hugging Face, or to the provider it was stored for."""
        if self.base_url is None or _is_hugging_face(self.base_url):
            return get_token()
        return server_key() or _NO_KEY

    def _http_failure(self, status: int, headers: Any, message: str) -> Failure:
        if status in (408, 429) or status >= 500:
            return Failure(what=f"HTTP {status}", message=message, wait=seconds_to_wait(headers.get("Retry-After", "")))
        remedy = "check the URL, the name of the model and the sampling settings"
        if status in (401, 403):
            remedy = f"expected a key with access, in HF_TOKEN for Hugging Face and in {KEY_VARIABLE} for other servers"
        raise self._refused(f"HTTP {status} {message}", remedy) from None

    def _other_failure(self, error: Exception, key: str | None) -> Failure:
        if isinstance(error, HTTPError):  # only the type: the text may quote a header
            return Failure(what=f"no response ({type(error).__name__})")
        if isinstance(error, (AttributeError, TypeError)):
            raise error
        if self.provider and not isinstance(error, (JSONDecodeError, UnicodeDecodeError, RecursionError)):
            raise self._refused(self._line(str(error), key), "expected provider:NAME/MODEL, and a token for it") from None
        return GARBAGE

    def _line(self, text: str, key: str | None) -> str:
        """A server message on one line, without key and secrets, and at most 200 characters long."""
        line = _plain(text)
        for secret in (key, *_secrets(self.base_url or "")):
            line = without_key(line, secret)
        return line[:200]

    def _refused(self, why: str, remedy: str) -> UserError:
        return UserError(f"cannot play {self.name!r} ({why.strip()}): {remedy}")


def read_reply(output: ChatCompletionOutput, *, plain_sampling: bool = False) -> Completion | Failure:
    """The reply in a server's response, with its thinking put back in front, and its tokens if there are any.

    A reply counts as the model's even if it was truncated before its first visible word, or holds only thinking or a tool
    call. An empty response is a reply if its finish reason says that the model ended it.
    """
    match output.choices:
        case [ChatCompletionOutputComplete(message=ChatCompletionOutputMessage() as message) as choice, *_]:
            content: Any = message.content or ""
            thinking: Any = message.reasoning or getattr(message, "reasoning_content", None) or ""
        case _:
            return GARBAGE
    if not isinstance(content, str) or not isinstance(thinking, str):
        return GARBAGE
    reason: Any = choice.finish_reason
    if reason in _BROKEN_OFF or not (content or thinking or message.tool_calls or reason in _ENDED):
        what = "a broken-off reply" if content or thinking else "an empty reply"
        return Failure(what=f"{what} with finish reason {_plain(str(reason or 'none'))[:40]}")
    text = f"<think>{thinking}</think>{content}" if thinking else content
    finish: Finish = "length" if reason == "length" else "stop"
    return Completion(text=text, finish=finish, usage=_usage(output.usage), **reply_tokens(output, choice, plain=plain_sampling))


def _usage(usage: Any) -> tuple[int, int] | None:
    match usage:
        case ChatCompletionOutputUsage(prompt_tokens=int(read), completion_tokens=int(written)):
            return read, written
    return None


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


def _response(error: BaseException | None) -> Any:
    """The HTTP response behind an error. If its body could not be parsed, the response is further back in the chain."""
    if isinstance(error, HTTPError):
        return getattr(error, "response", None)
    return _response(error.__context__) if error else None


def _is_hugging_face(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith((".huggingface.co", ".huggingface.cloud"))


def _secrets(url: str) -> list[str]:
    """What `without_secrets` leaves out, as a server may quote it. Values shorter than `_PART` are no secrets."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    sent = b64encode(f"{user}:{password}".encode()).decode()  # RFC 7617
    return [text for text in (sent, user, password, *(value for _, value in parse_qsl(parts.query))) if len(text) >= _PART]


def _plain(text: str) -> str:
    """A text on one line of printable characters."""
    return plain(" ".join(text.split()))


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
