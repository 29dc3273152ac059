"""Users, repositories, branches and Spaces."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from tests.hub_server.cards import front_matter
from tests.hub_server.routing import REPOSITORY, WEB, Ask, route
from tests.hub_server.store import READER, HubError, Repository


@route("/api/whoami-v2")
def whoami(ask: Ask) -> dict[str, Any]:
    if not ask.user:
        raise HubError(401, "Invalid username or password.")
    access = {"displayName": "test", "role": "read" if ask.token == READER else "write"}
    return {"type": "user", "name": ask.user, "orgs": [], "auth": {"type": "access_token", "accessToken": access}}


@route("/api/repos/create", "POST")
def create(ask: Ask) -> JSONResponse:
    ask.check_write()
    body = ask.json()
    kind, namespace = body.get("type") or "model", body.get("organization") or ask.user
    if namespace != ask.user:
        raise HubError(403, f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"')
    id_ = f"{namespace}/{body['name']}"
    there = (kind, id_) in ask.hub.repositories
    if not there:
        private = body.get("visibility", "private" if body.get("private") else "public") == "private"
        repository = ask.hub.repositories[kind, id_] = Repository(kind=kind, id=id_, private=private)
        if kind == "space":
            hardware = {"current": None, "requested": body.get("hardware", "cpu-basic")}
            repository.space = {"sdk": body["sdk"], "runtime": {"stage": "NO_APP_FILE", "hardware": hardware}}
    answer = {"url": ask.url(f"/{WEB[kind]}{id_}"), "name": id_, "id": id_}
    return JSONResponse(answer | ({"error": f"You already created this {kind} repo"} if there else {}), 409 if there else 200)


@route(REPOSITORY, need="read")
@route(REPOSITORY + "/revision/{revision}", need="read")
def info(ask: Ask) -> dict[str, Any]:
    repository = ask.repository
    commit = repository.find(ask.part("revision") or "main")
    card = front_matter(commit.files["README.md"].content.decode()) if "README.md" in commit.files else {}
    siblings = []
    for path, blob in sorted(commit.files.items()):
        details = {"size": len(blob.content), "blobId": blob.oid}
        lfs = {"lfs": {"sha256": blob.sha256, "size": len(blob.content), "pointerSize": 130}} if blob.lfs else {}
        siblings.append({"rfilename": path} | (details | lfs if "blobs" in ask.request.query_params else {}))
    described = {
        "id": repository.id,
        "sha": commit.oid,
        "private": repository.private,
        "gated": repository.gated or False,
        "disabled": False,
        "lastModified": commit.date,
        "tags": card.get("tags") or [],
        "cardData": card,
        "siblings": siblings,
        **repository.space,
    }
    wanted = ask.request.query_params.getlist("expand")
    return {key: value for key, value in described.items() if not wanted or key in ("id", *wanted)}


@route("/api/collections", "POST")
def create_collection(ask: Ask) -> JSONResponse:
    ask.check_write()
    body = ask.json()
    slug = f"{body['namespace']}/{body['title'].lower()}-0123456789abcdef01234567"
    status = 409 if slug in ask.hub.collections else 200
    made = {"slug": slug, "title": body["title"], "private": body["private"], "owner": {"name": ask.user}, "items": []}
    made |= {"lastUpdated": "2026-01-01T00:00:00.000Z", "position": 0, "theme": "blue", "upvotes": 0}
    return JSONResponse(ask.hub.collections.setdefault(slug, made), status)


@route("/api/collections/{namespace}/{name}")
def collection(ask: Ask) -> Any:
    return ask.hub.collections[f"{ask.part('namespace')}/{ask.part('name')}"]


@route("/api/collections/{namespace}/{name}/items", "POST")
def add_item(ask: Ask) -> JSONResponse:
    ask.check_write()
    found, item = collection(ask), ask.json()["item"]
    there = item["id"] in [other["id"] for other in found["items"]]
    found["items"] += [] if there else [{**item, "_id": item["id"], "position": len(found["items"])}]
    return JSONResponse(found, 409 if there else 200)


@route(REPOSITORY + "/super-squash/{ref}", "POST", need="write")
def super_squash(ask: Ask) -> dict[str, Any]:
    repository, branch = ask.repository, f"refs/heads/{ask.part('ref')}"
    head = repository.refs.pop(branch)
    if not repository.refs:
        repository.known.clear()
    repository.put(branch, head.files, ask.json()["message"], ask.user)
    return {}


@route(REPOSITORY + "/branch/{ref}", "POST", need="write")
def add_branch(ask: Ask) -> dict[str, Any]:
    ref = f"refs/heads/{ask.part('ref')}"
    if ref in ask.repository.refs:
        raise HubError(409, f"Reference already exists: {ref}")
    ask.repository.refs[ref] = ask.repository.find(ask.json().get("startingPoint", "main"))
    return {}


@route(REPOSITORY + "/hardware", "POST", need="write")
def request_hardware(ask: Ask) -> Any:
    runtime = ask.repository.space["runtime"]
    runtime["hardware"]["requested"] = ask.json()["flavor"]
    return runtime
