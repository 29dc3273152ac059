"""Who asks and what they may do, and the shapes of answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.store import KINDS, Hub, HubError, Repository, Token

Endpoint = Callable[[Request], Awaitable[Response]]


def on_repository(path: str, endpoint: Endpoint, *methods: str) -> Route:
    """A route below /api/models/NAMESPACE/NAME, and the same for datasets and Spaces."""
    return Route("/api/{kind}s/{namespace}/{name}" + path, endpoint, methods=methods or ("GET",))


def hub_of(request: Request) -> Hub:
    hub: Hub = request.app.state.hub()
    return hub


def parameter(request: Request, name: str) -> str:
    """A part of the path. Paths are matched as they were sent, so that a branch `a/b` is one part, `a%2Fb`."""
    return unquote(request.path_params[name])


async def body_of(request: Request) -> dict[str, Any]:
    content = json.loads(await request.body() or b"{}")
    if not isinstance(content, dict):
        raise HubError(400, "expected a JSON object")
    return content


def caller(request: Request) -> Token | None:
    """Whose token came along, if any."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer":
        return None
    token = hub_of(request).tokens.get(secret)
    if token is None:
        raise HubError(401, "Invalid credentials in Authorization header")
    return token


def writer(request: Request) -> Token:
    """Somebody with a token that may change things."""
    token = caller(request)
    if token is None:
        raise HubError(401, "Invalid username or password.")
    if token.role != "write":
        raise HubError(403, "You must use a write token")
    return token


def missing(token: Token | None) -> HubError:
    """The Hub does not tell strangers whether a repository is private or not there at all."""
    if token is None:
        return HubError(401, "Invalid username or password.", "RepoNotFound")
    return HubError(404, "Repository not found", "RepoNotFound")


def lookup(hub: Hub, token: Token | None, kind: str, repo_id: str) -> Repository:
    """A repository that the caller may see."""
    repository = hub.repositories.get((kind, repo_id))
    if kind not in KINDS or repository is None or (repository.private and (token is None or token.user != repository.owner)):
        raise missing(token)
    return repository


def readable(request: Request) -> Repository:
    repo_id = f"{parameter(request, 'namespace')}/{parameter(request, 'name').removesuffix('.git')}"
    return lookup(hub_of(request), caller(request), parameter(request, "kind"), repo_id)


def writable(request: Request) -> Repository:
    """A repository that the caller may change."""
    repository = readable(request)
    if writer(request).user != repository.owner:
        raise HubError(403, "You don't have the required permissions to write to this repository")
    return repository


def downloadable(request: Request) -> Repository:
    """A repository whose files the caller may have: that of a gated one only with its owner's consent."""
    repository, token = readable(request), caller(request)
    if repository.gated and (token is None or token.user not in {repository.owner, *repository.granted}):
        status = 401 if token is None else 403
        raise HubError(status, f"Access to {repository.kind} {repository.id} is restricted: ask for access.", "GatedRepo")
    return repository


def url_of(request: Request, path: str) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{path}"


def page(request: Request, entries: Sequence[dict[str, Any]]) -> JSONResponse:
    """One page of a list; a `Link` header leads to the next."""
    size, start = hub_of(request).page_size, int(request.query_params.get("cursor", 0))
    headers = {}
    if start + size < len(entries):
        headers["Link"] = f'<{request.url.include_query_params(cursor=start + size)}>; rel="next"'
    return JSONResponse(entries[start : start + size], headers=headers)


async def refuse(_: Request, refusal: Exception) -> Response:
    """A refusal as an answer, with what the client looks at in the headers."""
    assert isinstance(refusal, HubError)
    headers = {"X-Error-Message": refusal.message.replace("\n", " "), **refusal.headers}
    if refusal.code:
        headers["X-Error-Code"] = refusal.code
    return JSONResponse({"error": refusal.message}, refusal.status, headers)
