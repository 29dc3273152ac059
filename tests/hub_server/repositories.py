"""Users, repositories and their names: whoami, create, delete, move, settings, info, commits, branches, tags."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.access import (
    body_of,
    caller,
    hub_of,
    lookup,
    missing,
    on_repository,
    page,
    parameter,
    readable,
    url_of,
    writable,
    writer,
)
from tests.hub_server.cards import metadata_of
from tests.hub_server.spaces import settings_at_creation
from tests.hub_server.store import Blob, Commit, HubError, Repository

PREFIX = {"model": "", "dataset": "datasets/", "space": "spaces/"}


def web_path(repository: Repository) -> str:
    return f"/{PREFIX[repository.kind]}{repository.id}"


async def whoami(request: Request) -> Response:
    token = caller(request)
    if token is None:
        raise HubError(401, "Invalid username or password.")
    access = {"displayName": "test", "role": token.role, "createdAt": "2026-01-01T00:00:00.000Z"}
    person = {"type": "user", "id": token.user, "name": token.user, "fullname": token.user, "orgs": [], "isPro": True}
    return JSONResponse({**person, "auth": {"type": "access_token", "accessToken": access}})


async def create(request: Request) -> Response:
    token, body, hub = writer(request), await body_of(request), hub_of(request)
    kind, namespace = body.get("type") or "model", body.get("organization") or token.user
    if namespace != token.user:
        raise HubError(403, f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"')
    repository = hub.repositories.get((kind, f"{namespace}/{body['name']}"))
    status = 200 if repository is None else 409
    if repository is None:
        private = body.get("visibility", "private" if body.get("private") else "public") == "private"
        repository = hub.add(Repository(kind=kind, id=f"{namespace}/{body['name']}", private=private))
        if kind == "space":
            repository.space = settings_at_creation(body)
    answer = {"url": url_of(request, web_path(repository)), "name": repository.id, "id": repository.id}
    return JSONResponse(answer | ({"error": f"You already created this {kind} repo"} if status == 409 else {}), status)


def owned(request: Request, kind: str, repo_id: str) -> Repository:
    """A repository named in a body, for its owner."""
    token = writer(request)
    repository = lookup(hub_of(request), token, kind, repo_id)
    if repository.owner != token.user:
        raise missing(token)
    return repository


async def delete(request: Request) -> Response:
    body = await body_of(request)
    kind, namespace = body.get("type") or "model", body.get("organization") or writer(request).user
    repository = owned(request, kind, f"{namespace}/{body['name']}")
    del hub_of(request).repositories[repository.kind, repository.id]
    return JSONResponse({})


async def change_settings(request: Request) -> Response:
    repository, body = writable(request), await body_of(request)
    if "visibility" in body or "private" in body:
        repository.private = body.get("visibility") == "private" or bool(body.get("private"))
    if "gated" in body:
        repository.gated = body["gated"] or ""
    return JSONResponse({})


def sibling(path: str, blob: Blob, details: bool) -> dict[str, Any]:
    if not details:
        return {"rfilename": path}
    described = {"rfilename": path, "size": len(blob.content), "blobId": blob.oid}
    if blob.lfs:
        described["lfs"] = {"sha256": blob.sha256, "size": len(blob.content), "pointerSize": len(blob.pointer)}
    return described


async def info(request: Request) -> Response:
    repository = readable(request)
    commit = repository.find(parameter(request, "revision") if "revision" in request.path_params else "refs/heads/main")
    details = "blobs" in request.query_params
    card = metadata_of(commit.files["README.md"].content.decode()) if "README.md" in commit.files else {}
    described = {
        "id": repository.id,
        "author": repository.owner,
        "sha": commit.oid,
        "private": repository.private,
        "gated": repository.gated or False,
        "disabled": False,
        "createdAt": repository.created,
        "lastModified": commit.date,
        "downloads": 0,
        "likes": 0,
        "tags": [tag for tag in card.get("tags") or [] if isinstance(tag, str)],
        "cardData": card,
        "library_name": card.get("library_name"),
        "pipeline_tag": card.get("pipeline_tag"),
        "siblings": [sibling(path, blob, details) for path, blob in sorted(commit.files.items())],
    }
    if repository.kind == "space":
        described |= {"sdk": repository.space["sdk"], "runtime": repository.space["runtime"]}
    asked = request.query_params.getlist("expand") or request.query_params.getlist("expand[]")
    return JSONResponse({key: value for key, value in described.items() if not asked or key in ("id", *asked)})


async def list_commits(request: Request) -> Response:
    def described(commit: Commit) -> dict[str, Any]:
        authors = [{"user": commit.author}]
        return {"id": commit.oid, "title": commit.title, "message": commit.message, "date": commit.date, "authors": authors}

    commit = readable(request).find(parameter(request, "revision"))
    return page(request, [described(earlier) for earlier in commit.history()])


async def list_refs(request: Request) -> Response:
    refs = readable(request).refs

    def under(prefix: str) -> list[dict[str, str]]:
        names = [name for name in refs if name.startswith(prefix)]
        return [{"name": name.removeprefix(prefix), "ref": name, "targetCommit": refs[name].oid} for name in names]

    answer = {"branches": under("refs/heads/"), "tags": under("refs/tags/"), "converts": []}
    return JSONResponse(answer | ({"pullRequests": under("refs/pr/")} if "include_prs" in request.query_params else {}))


async def super_squash(request: Request) -> Response:
    """Makes one commit of a branch's history; what only earlier commits had is gone."""
    repository, branch = writable(request), f"refs/heads/{parameter(request, 'ref')}"
    head = repository.find(branch)
    kept = repository.refs.keys() - {branch}
    if not any(repository.refs[name].oid == commit.oid for name in kept for commit in head.history()):
        for commit in head.history():
            repository.known.pop(commit.oid, None)
    del repository.refs[branch]
    repository.put(branch, head.files, (await body_of(request))["message"], writer(request).user)
    return JSONResponse({})


def add_ref(repository: Repository, ref: str, revision: str) -> Response:
    if ref in repository.refs:
        raise HubError(409, f"Reference already exists: {ref}")
    repository.refs[ref] = repository.find(revision)
    return JSONResponse({})


def delete_ref(repository: Repository, ref: str) -> Response:
    if ref not in repository.refs:
        raise HubError(404, f"Reference not found: {ref}", "RevisionNotFound")
    if ref == "refs/heads/main":
        raise HubError(403, "Cannot delete the main branch")
    del repository.refs[ref]
    return JSONResponse({})


async def branch(request: Request) -> Response:
    repository, ref = writable(request), f"refs/heads/{parameter(request, 'ref')}"
    if request.method == "DELETE":
        return delete_ref(repository, ref)
    return add_ref(repository, ref, (await body_of(request)).get("startingPoint", "main"))


async def tag(request: Request) -> Response:
    """Made at a revision named in the path; deleted by its own name there."""
    repository, name = writable(request), parameter(request, "ref")
    if request.method == "DELETE":
        return delete_ref(repository, f"refs/tags/{name}")
    return add_ref(repository, f"refs/tags/{(await body_of(request))['tag']}", name)


routes = [
    Route("/api/whoami-v2", whoami),
    Route("/api/repos/create", create, methods=["POST"]),
    Route("/api/repos/delete", delete, methods=["DELETE"]),
    on_repository("", info),
    on_repository("/revision/{revision}", info),
    on_repository("/settings", change_settings, "PUT"),
    on_repository("/commits/{revision}", list_commits),
    on_repository("/refs", list_refs),
    on_repository("/super-squash/{ref}", super_squash, "POST"),
    on_repository("/branch/{ref}", branch, "POST", "DELETE"),
    on_repository("/tag/{ref}", tag, "POST", "DELETE"),
]
