"""The door of the server: what it refuses before gradio reads a request.

The Space takes no files and shows none of others, so the parts of gradio that store a visitor's files or fetch a visitor's URL
are closed. A request is a few names and at most two texts, so a large one is refused unread. A call of an endpoint has the
endpoint's parameters; gradio would answer any other with `null`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_REQUEST = 2**17
"""Bytes of a request's body: two of the longest texts, written as JSON. Gradio keeps what its last sessions sent in memory."""

CLOSED = ("upload", "file=http:", "file=https:", "file/", "proxy=", "process_recording", "stream/", "deep_link")
"""Beginnings of paths under /gradio_api/ that are not served."""


CALL = re.compile(r".*/gradio_api/call/(v2/)?(\w+)/?")
"""The path of a call of an endpoint."""

Endpoints = Mapping[str, Callable[..., Any]]
"""Name → function."""


class Door:
    """Middleware: passes on what the Space serves.

    Args:
        app: the server.
        endpoints: what programs can call.
    """

    def __init__(self, app: ASGIApp, endpoints: Endpoints) -> None:
        self.app, self.endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = refusal(scope) if scope["type"] == "http" else None
        call = CALL.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" and not refused else None
        if call and call[2] in self.endpoints:
            receive, body = await _read(receive)
            refused = misfit(call[2], self.endpoints[call[2]], body, by_name=bool(call[1]))
        await (refused or self.app)(scope, receive, send)


async def _read(receive: Receive) -> tuple[Receive, bytes]:
    """The body of a request, and what gives it once more."""
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body"):
        messages.append(await receive())
    body = b"".join(message.get("body", b"") for message in messages)
    left = iter(messages)

    async def again() -> Message:
        return next(left, None) or await receive()

    return again, body


def misfit(name: str, function: Callable[..., Any], body: bytes, *, by_name: bool) -> JSONResponse | None:
    """The answer to a call without the parameters of its function; None for any other, and for what is no JSON object."""
    try:
        given = json.loads(body)
    except ValueError:
        return None
    except RecursionError:
        return JSONResponse({"detail": f"{name}: expected JSON that is not nested so deeply"}, 422)
    values = given if by_name else given.get("data") if isinstance(given, dict) else None
    signature = inspect.signature(function)
    try:
        if by_name and isinstance(values, dict):
            signature.bind(**values)
        elif not by_name and isinstance(values, list):
            signature.bind(*values)
    except TypeError as error:
        return JSONResponse({"detail": f"{name}: {error}; expected {', '.join(signature.parameters) or 'no parameters'}"}, 422)
    return None


def refusal(scope: Scope) -> JSONResponse | None:
    """The answer to a request that is refused unread; None for any other."""
    path = scope["path"].partition("/gradio_api/")[2]
    if path.startswith(CLOSED):
        return JSONResponse({"detail": "the Space takes no files and fetches none"}, 403)
    if scope["method"] != "POST":
        return None
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers:  # with both, the server reads by the other one
        return JSONResponse({"detail": "expected a request with its length"}, 411)
    if len(length) > 9 or int(length) > LARGEST_REQUEST:
        return JSONResponse({"detail": f"{length[:20]} bytes: expected at most {LARGEST_REQUEST:,}"}, 413)
    return None
