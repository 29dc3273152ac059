"""Writing: preupload, Git LFS and the commit itself."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.access import body_of, hub_of, on_repository, parameter, readable, url_of, writable, writer
from tests.hub_server.cards import check_card
from tests.hub_server.repositories import web_path
from tests.hub_server.store import LFS_SIZE, LFS_SUFFIXES, OWNER, READER, STRANGER, Blob, HubError, Repository


def target(request: Request) -> tuple[Repository, str]:
    """The repository to commit to, and the ref. For a pull request, seeing the repository is enough."""
    revision = parameter(request, "revision")
    pull_request = "create_pr" in request.query_params or revision.startswith("refs/pr/")
    repository = readable(request) if pull_request else writable(request)
    writer(request)
    ref = repository.ref(revision)
    if ref is None or ref.startswith("refs/tags/"):
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    return repository, ref


async def preupload(request: Request) -> Response:
    """Where each file is to go, and what is there now: a client leaves out what has not changed."""
    repository, ref = target(request)
    here = repository.refs[ref].files

    def described(file: dict[str, Any]) -> dict[str, Any]:
        path, binary = file["path"], b"\0" in base64.b64decode(file["sample"])
        lfs = path.rpartition(".")[2] in LFS_SUFFIXES or file["size"] > LFS_SIZE or binary
        answer: dict[str, Any] = {"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False}
        return answer | ({"oid": here[path].etag} if path in here else {})

    files = (await body_of(request))["files"]
    if len(files) > 256:
        raise HubError(400, "at most 256 files at once")
    return JSONResponse({"files": [described(file) for file in files]})


async def lfs_batch(request: Request) -> Response:
    """Which objects to send, and where to."""
    repository, body = readable(request), await body_of(request)
    writer(request)
    place = url_of(request, f"/_lfs/{repository.kind}/{repository.id}")

    def described(wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["oid"] in repository.objects:
            return wanted
        url = f"{place}/{wanted['oid']}"
        return wanted | {"actions": {"upload": {"href": url}, "verify": {"href": f"{url}/verify"}}}

    answer = {"transfer": "basic", "objects": [described(wanted) for wanted in body["objects"]]}
    return JSONResponse(answer, media_type="application/vnd.git-lfs+json")


def stored_in(request: Request) -> tuple[Repository, str]:
    """Whoever has the URL may send: it carries no token."""
    parts = request.path_params
    return hub_of(request).repositories[parts["kind"], f"{parts['namespace']}/{parts['name']}"], parts["oid"]


async def lfs_put(request: Request) -> Response:
    repository, oid = stored_in(request)
    content = await request.body()
    if hashlib.sha256(content).hexdigest() != oid:
        raise HubError(400, "the content does not have the announced hash")
    repository.objects[oid] = content
    return Response()


async def lfs_verify(request: Request) -> Response:
    repository, oid = stored_in(request)
    if len(repository.objects.get(oid, b"")) != (await body_of(request))["size"]:
        raise HubError(404, "no such object, or of another size")
    return JSONResponse({})


def changes_of(repository: Repository, ref: str, lines: list[dict[str, Any]]) -> dict[str, Blob | None]:
    """What the lines of a commit come to, in their order."""
    before, changes = repository.refs[ref].files, dict[str, Blob | None]()
    for line in lines:
        value = line["value"]
        path = value.get("path", "")
        if line["key"] == "file":
            changes[path] = Blob(content=base64.b64decode(value["content"]))
        elif line["key"] == "lfsFile":
            if value["oid"] not in repository.objects:
                raise HubError(400, f"LFS pointer pointed to a file that does not exist: {value['oid']}")
            changes[path] = Blob(content=repository.objects[value["oid"]], lfs=True)
        elif line["key"] == "deletedFile":
            if path not in before:
                raise HubError(404, f"{path} does not exist", "EntryNotFound")
            changes[path] = None
        elif line["key"] == "deletedFolder":
            changes |= {name: None for name in before if name.startswith(path.rstrip("/") + "/")}
    return changes


def check(kind: str, changes: dict[str, Blob | None]) -> None:
    """Refuses a card that is wrong and a file with a token in it, as the Hub does on every push."""
    for path, blob in changes.items():
        if blob and any(secret.encode() in blob.content for secret in (OWNER, READER, STRANGER)):
            raise HubError(400, f"Your push was rejected because it contains a valid Hugging Face token, in {path}")
    if readme := changes.get("README.md"):
        errors, _ = check_card(kind, readme.content.decode())
        if errors:
            raise HubError(400, "Invalid metadata in README.md: " + "; ".join(errors))


async def commit(request: Request) -> Response:
    repository, ref = target(request)
    header, *lines = [json.loads(line) for line in (await request.body()).splitlines() if line]
    summary, description = header["value"]["summary"], header["value"].get("description", "")
    parent = header["value"].get("parentCommit")
    if parent and not repository.refs[ref].oid.startswith(parent):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    changes, author = changes_of(repository, ref, lines), writer(request).user
    check(repository.kind, changes)
    answer: dict[str, Any] = {"success": True}
    if "create_pr" in request.query_params:
        repository.pull_requests += 1
        ref = f"refs/pr/{repository.pull_requests}"
        repository.refs[ref] = repository.head
        answer["pullRequestUrl"] = url_of(request, f"{web_path(repository)}/discussions/{repository.pull_requests}")
    made = repository.put(ref, changes, summary, author, description)
    where = url_of(request, f"{web_path(repository)}/commit/{made.oid}")
    return JSONResponse(answer | {"commitOid": made.oid, "commitUrl": where})


async def list_requests(request: Request) -> Response:
    """The open pull requests, on one page. Closed ones have no ref."""
    repository = readable(request)
    opened = [
        {
            "num": int(ref.rpartition("/")[2]),
            "title": commit.title,
            "status": "open",
            "author": {"name": commit.author},
            "createdAt": commit.date,
            "repo": {"name": repository.id, "type": repository.kind},
            "isPullRequest": True,
        }
        for ref, commit in repository.refs.items()
        if ref.startswith("refs/pr/")
    ]
    return JSONResponse({"discussions": opened, "count": len(opened), "start": 0})


async def merge(request: Request) -> Response:
    """One commit on main with the changes of a pull request, which has one commit. The merge removes its ref."""
    repository, ref = writable(request), f"refs/pr/{request.path_params['number']}"
    theirs = repository.refs.pop(ref, None)
    if theirs is None or theirs.parent is None:
        raise HubError(404, f"no open pull request {ref}")
    base, head = theirs.parent.files, repository.head.files
    paths = theirs.files.keys() | base.keys()
    changes = {path: theirs.files.get(path) for path in paths if theirs.files.get(path) != base.get(path)}
    if clashing := [path for path in changes if head.get(path) not in (base.get(path), changes[path])]:
        repository.refs[ref] = theirs
        raise HubError(409, f"This pull request has conflicts in {', '.join(sorted(clashing))}")
    return JSONResponse({"oid": repository.put("refs/heads/main", changes, theirs.title, writer(request).user).oid})


LFS = "/_lfs/{kind}/{namespace}/{name}/{oid}"
routes = [
    on_repository("/preupload/{revision}", preupload, "POST"),
    on_repository("/commit/{revision}", commit, "POST"),
    on_repository("/discussions", list_requests),
    on_repository("/discussions/{number:int}/merge", merge, "POST"),
    Route("/{kind}s/{namespace}/{name}/info/lfs/objects/batch", lfs_batch, methods=["POST"]),
    Route(LFS, lfs_put, methods=["PUT"]),
    Route(LFS + "/verify", lfs_verify, methods=["POST"]),
]
