"""The Hub as an ASGI application: the routes, and around them the log of requests, the faults and the refusal of strays."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.hub_server import access, cards, commits, files, jobs, repositories, spaces
from tests.hub_server.faults import KNOWN, Fault, Faults
from tests.hub_server.store import Blob, Hub, HubError


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request that was answered."""

    line: str  # `METHOD /path?query`, as it was sent
    status: int
    token: str = ""
    sent: int = 0  # bytes of the request's body


@dataclass
class World:
    """Everything that a test looks at or sets, replaced as a whole for the next test."""

    hub: Hub = field(default_factory=Hub)
    faults: Faults = field(default_factory=Faults)
    seen: list[Seen] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """What was sent here as to a proxy, on its way to another machine."""
    crashes: list[str] = field(default_factory=list)
    """Tracebacks of this server's own errors. A client sees only a 500, and may try again."""


def internal_path(raw: str) -> str:
    """Files of models have no prefix, those of datasets and Spaces do: gives all of them one.

    >>> internal_path("/ada/lake/resolve/main/a.txt"), internal_path("/datasets/ada/lake/resolve/main/a.txt")
    ('/models/ada/lake/resolve/main/a.txt', '/datasets/ada/lake/resolve/main/a.txt')
    """
    first = raw.split("/")[1]
    return raw if first in ("api", "datasets", "spaces") or first.startswith("_") else f"/models{raw}"


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


def someone_commits(hub: Hub, path: str) -> None:
    """A commit of somebody else on main of the repository that an API path names."""
    _, _, kinds, namespace, name, *_ = path.split("/")
    repository = hub.repositories[kinds.removesuffix("s"), f"{namespace}/{name}"]
    number = len(repository.known)
    note = {f"note-{number}.txt": Blob(content=b"somebody else was faster\n")}
    repository.put("refs/heads/main", note, "Somebody else's commit", "bob")


@dataclass
class Watched:
    """Takes an answer on its way out: writes it down, and breaks it off where a fault says so."""

    send: Send
    scope: Scope
    line: str
    size: int
    world: World
    left: float  # bytes of the body that still get through

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            token = dict(self.scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            self.world.seen.append(Seen(line=self.line, status=message["status"], token=token, sent=self.size))
        elif len(message["body"]) > self.left:
            # uvicorn closes a connection whose answer is not complete at the end.
            await self.send({"type": "http.response.body", "body": message["body"][: int(self.left)], "more_body": True})
            return
        await self.send(message)


@dataclass
class Front:
    """Stands before the routes: everything that comes in passes here."""

    routes: ASGIApp
    world: Callable[[], World]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw, world = scope["raw_path"].decode(), self.world()
        if not raw.startswith("/"):
            # Sent as to a proxy. `datasets` derives a second host from ours, for a service that this Hub does not have.
            if not raw.startswith(f"http://datasets-server.{scope['server'][0]}:"):
                world.strays.append(f"{scope['method']} {raw}")
            await PlainTextResponse("no request leaves this machine", 403)(scope, receive, send)
            return
        # Starlette matches the path it finds here: the raw one, in which `%2F` is not yet a `/`.
        inner, body = {**scope, "path": internal_path(raw)}, await read_body(receive)

        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()  # then the client leaves, at some time

        if raw == "/_faults":
            await self.routes(inner, again, send)
            return
        query = scope["query_string"].decode()
        line = f"{scope['method']} {raw}" + (f"?{query}" if query else "")
        fault = world.faults.meet(line, body) or Fault()
        if fault.race:
            someone_commits(world.hub, raw)
        left = math.inf if fault.truncate is None else fault.truncate
        answer = fault_answer(fault) if fault.status else self.routes
        await answer(inner, again, Watched(send, scope, line, len(body), world, left))


def fault_answer(fault: Fault) -> Response:
    headers = {"X-Error-Message": fault.message, **fault.headers} | ({"X-Error-Code": fault.code} if fault.code else {})
    return JSONResponse({"error": fault.message}, fault.status, headers)


async def unknown(_: Request, __: Exception) -> Response:
    """404 and never 500: clients try routes that not every Hub has."""
    return JSONResponse({"error": "Not Found"}, 404)


def make_app(world: Callable[[], World]) -> Front:
    """The application. `world` gives what it keeps, so that a test can begin with an empty one."""

    async def faults(request: Request) -> Response:
        coming = world().faults
        if request.method == "DELETE":
            coming.coming.clear()
        elif request.method == "POST":
            changes = await access.body_of(request)
            if changes.get("fault") not in KNOWN:
                raise HubError(400, f"expected a fault among {', '.join(KNOWN)}")
            coming.add(changes.pop("fault"), **changes)
        return JSONResponse([asdict(fault) for fault in coming.coming])

    async def crashed(_: Request, error: Exception) -> Response:
        world().crashes.append("".join(traceback.format_exception(error)))
        return PlainTextResponse("a mistake in the server of these tests", 500)

    modules = (cards, jobs, repositories, files, commits, spaces)  # /api/jobs looks like a kind of repository
    routes = [route for module in modules for route in module.routes]
    admin = Route("/_faults", faults, methods=["GET", "POST", "DELETE"])
    handlers = {HubError: access.refuse, 404: unknown, 500: crashed}
    application = Starlette(routes=[admin, *routes], exception_handlers=handlers)
    application.state.hub = lambda: world().hub
    return Front(application, world)
