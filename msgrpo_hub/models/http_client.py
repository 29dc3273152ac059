"""HTTP requests to servers of models: one client, one kind of error, one retry policy, threads that wait for replies."""

from __future__ import annotations

import json
import os
import random
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from huggingface_hub import get_token, is_offline_mode

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError, plain

try:
    import httpx2 as httpx
except ImportError:  # huggingface_hub 1 comes with httpx
    import httpx  # type: ignore[no-redef]

KEY_VARIABLE = "MSGRPO_ENDPOINT_KEY"
"""The environment variable with the key for servers outside Hugging Face."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class RequestError(Exception):
    """A request without a usable response.

    Args:
        what: a short description, such as `HTTP 503`.
        status: the HTTP status; 0 without one.
        message: the server's message on one line, without secrets.
        body: the text of the response.
        wait: seconds after which the server asks to retry.

    Attributes:
        is_temporary: whether the same request may succeed later.
    """

    def __init__(self, what: str, *, status: int = 0, message: str = "", body: str = "", wait: float = 0.0) -> None:
        super().__init__(f"{what}: {message}" if message else what)
        self.what, self.status, self.message, self.body, self.wait = what, status, message, body, wait
        self.is_temporary = status in (0, 408, 429) or status >= 500


def request(method: str, url: str, body: Any = None, *, timeout: float, direct: bool = False) -> Any:
    """Sends a request with the user's key for this server and returns the parsed JSON of the response, or its text.

    Redirects are followed.

    Args:
        method: GET or POST.
        url: the full URL; it may contain user, password and query.
        body: sent as JSON.
        timeout: seconds without a byte after which the request fails.
        direct: whether the server is in the user's own network: HF_HUB_OFFLINE and proxies do not apply, as on this machine.

    Raises:
        RequestError: no response, or a status other than 2xx.
        UserError: the key cannot be sent, or the network is switched off.
    """
    key, local = key_for(url), direct or urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    if is_offline_mode() and not local:
        raise UserError(f"HF_HUB_OFFLINE forbids requests to {urlsplit(url).hostname}: unset it to use this server")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    content = None if body is None else json.dumps(body)
    try:
        response = _client(proxies=not local).request(
            method, url, content=content, headers=headers, timeout=timeout, follow_redirects=not is_offline_mode()
        )
    except httpx.HTTPError as error:  # only the type: the text may quote a header
        raise RequestError(f"no response ({type(error).__name__})") from error
    if not response.is_success:
        message, wait = response.text, 0.0
        with suppress(ValueError):  # a date is not read
            wait = max(0.0, float(response.headers.get("Retry-After", "")))
        with suppress(ValueError, RecursionError):
            match response.json():  # of vLLM or FastAPI
                case {"error": {"message": str(text)}} | {"message": str(text)} | {"detail": str(text)}:
                    message = text
        raise RequestError(
            f"HTTP {response.status_code}",
            status=response.status_code,
            message=without_secrets_of(url, message),
            body=response.text,
            wait=wait,
        )
    try:
        return response.json()
    except (ValueError, RecursionError):
        return response.text


@cache
def _client(*, proxies: bool) -> httpx.Client:
    """The client of this process; `proxies`: whether it uses HTTPS_PROXY and similar variables."""
    return httpx.Client(
        headers={"User-Agent": f"msgrpo_hub/{__version__}"},
        limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),  # servers close idle connections after 5 s
        trust_env=proxies,
    )


def key_for(url: str) -> str:
    """The key for a server: the Hugging Face token for Hugging Face, MSGRPO_ENDPOINT_KEY for others; empty if not set."""
    parts = urlsplit(url)
    if parts.scheme == "https" and f".{parts.hostname}".endswith((".huggingface.co", ".huggingface.cloud")):
        return get_token() or ""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{KEY_VARIABLE} holds a character that a key cannot have: expected the key of the server")
    return key


def without_secrets_of(url: str, text: str) -> str:
    """A server's message on one line, of at most 200 characters, without the key and the URL's user, password and query."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    secrets = [b64encode(f"{user}:{password}".encode()).decode(), user, password, parts.query]
    secrets += [value for _, value in parse_qsl(parts.query)]
    text = plain(" ".join(text[:5000].split()))
    for secret in [key_for(url), *(secret for secret in secrets if len(secret) > 5)]:  # a shorter one may be part of a word
        text = text.replace(secret, "***") if secret else text
    return text[:200]


def pause_after(attempt: int, first: float, wait: float = 0.0) -> float:
    """Seconds before the next attempt: twice as long each time up to 30 s, minus up to half at random, at least `wait`."""
    jitter = random.SystemRandom().uniform(0.5, 1.0)  # not a seeded stream: server failures must not affect results
    return max(wait, min(30.0, first * 2.0 ** (attempt - 1)) * jitter)


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """Calls a function with each item in threads and returns the results in order.

    The first error is raised at once; items not yet started are cancelled.
    """
    futures = start_threads(function, items, workers)
    try:
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def start_threads(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Future[Result]]:
    """Starts to call a function with each item. The threads are daemons, so Ctrl-C does not wait for a server."""
    futures: list[Future[Result]] = [Future() for _ in items]
    waiting = iter([*zip(futures, items, strict=True)])  # threads may share the iterator of a list

    def work() -> None:
        for future, item in waiting:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(item))
                except BaseException as error:
                    future.set_exception(error)

    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    return futures
