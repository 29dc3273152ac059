"""The door of the server: what it refuses before a request is read.

The Space takes no files and shows none of others, so the parts of gradio that store a visitor's files or fetch a visitor's URL
are closed. A request is a few names and at most two texts, so a large one is refused unread.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LARGEST_REQUEST = 2_000_000
"""Bytes of a request's body."""

CLOSED = ("upload", "file=http:", "file=https:", "proxy=", "process_recording", "stream/")
"""Beginnings of paths under /gradio_api/ that are not served."""


class Door:
    """Middleware: passes on what the Space serves."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = refusal(scope) if scope["type"] == "http" else None
        await (refused or self.app)(scope, receive, send)


def refusal(scope: Scope) -> JSONResponse | None:
    """The answer to a request that is refused unread; None for any other."""
    path = scope["path"].partition("/gradio_api/")[2]
    if path.startswith(CLOSED):
        return JSONResponse({"detail": "the Space takes no files and fetches none"}, 403)
    if scope["method"] != "POST":
        return None
    length = Headers(scope=scope).get("content-length", "")
    if not length.isdecimal():
        return JSONResponse({"detail": "expected a request with its length"}, 411)
    if len(length) > 9 or int(length) > LARGEST_REQUEST:
        return JSONResponse({"detail": f"{length[:20]} bytes: expected at most {LARGEST_REQUEST:,}"}, 413)
    return None
