"""How a function becomes a route: who asks, whether they may, and the response."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.store import READER, USERS, Hub, HubError, Repository

ROUTES: list[Route] = []
REPOSITORY = "/api/{kind}s/{namespace}/{name}"
WEB = {"model": "", "dataset": "datasets/", "space": "spaces/"}
"""Kind → prefix of a repository's page."""


@dataclass
class Ask:
    request: Request
    hub: Hub
    body: bytes
    token: str
    """Empty without a login."""

    @property
    def user(self) -> str:
        return USERS.get(self.token, "")

    @property
    def repository(self) -> Repository:
        return self.hub.repositories[self.part("kind"), f"{self.part('namespace')}/{self.part('name').removesuffix('.git')}"]

    def part(self, name: str) -> str:
        """A part of the path. Paths are matched undecoded, so that a branch `a/b` is one part, `a%2Fb`."""
        return unquote(self.request.path_params.get(name, ""))

    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def url(self, path: str) -> str:
        return f"{self.request.url.scheme}://{self.request.url.netloc}{path}"

    def check_write(self) -> None:
        """Raises `HubError` unless the token may write."""
        if not self.user:
            raise HubError(401, "Invalid username or password.")
        if self.token == READER:
            raise HubError(403, "You must use a write token")

    def check_access(self, need: str) -> None:
        """Raises `HubError` unless the sender may see the repository, and may "download" from it, "write" to it, or "propose"."""
        try:
            found = self.repository
        except KeyError:
            found = None
        if not found or (found.private and self.user != found.owner):  # the Hub does not reveal private repositories
            status, message = (404, "Repository not found") if self.user else (401, "Invalid username or password.")
            raise HubError(status, message, "RepoNotFound")
        if need == "download" and found.gated and self.user != found.owner:
            raise HubError(403 if self.user else 401, f"Access to {found.id} is restricted: ask for access.", "GatedRepo")
        if need in ("write", "propose"):
            self.check_write()
        if need == "write" and self.user != found.owner:
            raise HubError(403, "You don't have the required permissions to write to this repository")


def route(path: str, method: str = "GET", need: str = "") -> Callable[[Callable[[Ask], Any]], Callable[[Ask], Any]]:
    """Decorator: the function answers these requests with JSON data or a `Response`. `need` is as for `Ask.check_access`."""

    def register(answer: Callable[[Ask], Any]) -> Callable[[Ask], Any]:
        async def endpoint(request: Request) -> Response:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if token and token not in USERS:
                raise HubError(401, "Invalid credentials in Authorization header")
            ask = Ask(request, request.app.state.hub(), await request.body(), token)
            if need:
                ask.check_access(need)
            found = answer(ask)
            return found if isinstance(found, Response) else JSONResponse(found)

        ROUTES.append(Route(path, endpoint, methods=[method]))
        return answer

    return register


async def refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HubError)
    return JSONResponse({"error": str(error)}, error.status, error.headers)
