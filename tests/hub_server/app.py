"""The Hub as an ASGI application: its routes, behind a log of requests, injected faults and the refusal of proxy requests."""

from __future__ import annotations

import dataclasses
import math
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.hub_server import files, jobs, repositories  # noqa: F401  (their routes are in ROUTES)
from tests.hub_server.routing import ROUTES, refuse
from tests.hub_server.store import Hub, HubError

COMMIT = "POST /api/.*/commit/"
"""The requests that commit, for `Fault.where`."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A failure of some requests. By default the Hub is unavailable."""

    where: str
    """Regular expression searched in `METHOD /path?query`."""
    status: int = 503
    """Sent instead of the answer; 0 answers the request."""
    message: str = "Service Unavailable"
    times: int = 1
    after: int = 0
    """Number of matching requests that pass first."""
    truncate: int | None = None
    """With status 0, the connection breaks after this many bytes of the answer's body."""
    before: Callable[[], object] | None = None


@dataclass
class World:
    """The state of a Hub; each test gets a new one."""

    hub: Hub = field(default_factory=Hub)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Answered requests as `METHOD /path?query`."""
    strays: list[str] = field(default_factory=list)
    """Requests for other machines, sent here as to a proxy."""
    crashes: list[str] = field(default_factory=list)
    """Tracebacks of this server; a client only sees a 500 and may try again."""

    def next_fault(self, line: str) -> Fault | None:
        """The first fault that matches a request; it counts as having happened."""
        for index, fault in enumerate(self.faults):
            if not re.search(fault.where, line):
                continue
            if fault.after:
                self.faults[index] = dataclasses.replace(fault, after=fault.after - 1)
                return None
            self.faults[index : index + 1] = [dataclasses.replace(fault, times=fault.times - 1)] if fault.times > 1 else []
            return fault
        return None


def make_app(world: Callable[[], World]) -> ASGIApp:
    """The application. `world` returns its state, which a test replaces."""

    async def not_found(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "Not Found"}, 404)  # clients try routes that not every Hub has

    async def crashed(_: Request, error: Exception) -> Response:
        world().crashes.append("".join(traceback.format_exception(error)))
        return PlainTextResponse("a bug in the Hub of these tests", 500)

    routes = sorted(ROUTES, key=lambda route: route.path.startswith("/api/{"))  # /api/jobs looks like a kind of repository
    application = Starlette(routes=routes, exception_handlers={HubError: refuse, 404: not_found, 500: crashed})
    application.state.hub = lambda: world().hub

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw, now = scope["raw_path"].decode(), world()
        if not raw.startswith("/"):  # `datasets` derives a host from ours for a service that this Hub does not have
            if not raw.startswith(f"http://datasets-server.{scope['server'][0]}:"):
                now.strays.append(f"{scope['method']} {raw}")
            await PlainTextResponse("no request leaves this machine", 403)(scope, receive, send)
            return
        line = f"{scope['method']} {raw}" + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        fault = now.next_fault(line)
        left = math.inf if fault is None or fault.truncate is None else fault.truncate
        if fault and fault.before:
            fault.before()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                now.requests.append(line)
            elif len(message["body"]) > left:  # uvicorn closes a connection whose answer is incomplete
                message = {"type": "http.response.body", "body": message["body"][: int(left)], "more_body": True}
            await send(message)

        answer: ASGIApp = application
        if fault and fault.status:
            answer = JSONResponse({"error": fault.message}, fault.status, {"X-Error-Message": fault.message})
        first = raw.split("/")[1]  # files of models have no prefix: add one, as datasets and Spaces have
        prefix = "" if first in ("api", "datasets", "spaces") or first.startswith("_") else "/models"
        # Starlette matches this path, which is still encoded: `%2F` is not a separator.
        await answer({**scope, "path": prefix + raw}, receive, watched)

    return front
