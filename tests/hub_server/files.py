"""Reading files, and writing them: preupload, Git LFS, commits and pull requests."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, Response

from tests.hub_server.cards import check_card
from tests.hub_server.routing import REPOSITORY, WEB, Ask, route
from tests.hub_server.store import LFS_SIZE, LFS_SUFFIXES, USERS, Blob, Commit, HubError


def entries(commit: Commit) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path, blob in commit.files.items():
        for folder in (path[:end] for end, character in enumerate(path) if character == "/"):
            found[folder] = {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "size": 0, "path": folder}
        size = len(blob.content)
        lfs = {"lfs": {"oid": blob.sha256, "size": size, "pointerSize": 130}} if blob.lfs else {}
        found[path] = {"type": "file", "oid": blob.oid, "size": size, "path": path, **lfs}
    return dict(sorted(found.items()))


def not_there(commit: Commit, path: str) -> HubError:
    """Names the commit, so that the client remembers that the file is not in it."""
    return HubError(404, f"{path} does not exist", "EntryNotFound", **{"X-Repo-Commit": commit.oid})


@route(REPOSITORY + "/tree/{revision}", need="read")
@route(REPOSITORY + "/tree/{revision}/{path:path}", need="read")
def tree(ask: Ask) -> list[dict[str, Any]]:
    commit, root = ask.repository.find(ask.part("revision")), ask.part("path").strip("/")
    found, below = entries(commit), f"{root}/" if root else ""
    if root and found.get(root, {}).get("type") != "directory":
        raise not_there(commit, root)
    recursive = ask.request.query_params.get("recursive", "").lower() in ("true", "1")
    inside = {path: entry for path, entry in found.items() if path.startswith(below)}
    return [entry for path, entry in inside.items() if recursive or "/" not in path.removeprefix(below)]


@route(REPOSITORY + "/paths-info/{revision}", "POST", need="read")
def paths_info(ask: Ask) -> list[dict[str, Any]]:
    found = entries(ask.repository.find(ask.part("revision")))
    return [found[path] for path in parse_qs(ask.body.decode()).get("paths", []) if path in found]


@route("/{kind}s/{namespace}/{name}/resolve/{revision}/{path:path}", need="download")
def resolve(ask: Ask) -> Response:
    """A file, or the part `bytes=2-5`, `bytes=2-` or `bytes=-5` of it."""
    commit, path = ask.repository.find(ask.part("revision")), ask.part("path")
    if path not in commit.files:
        raise not_there(commit, path)
    blob = commit.files[path]
    headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", ask.request.headers.get("range", ""))
    if not wanted:
        return Response(blob.content, 200, headers, media_type="application/octet-stream")
    size = len(blob.content)
    start = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
    end = min(int(wanted[2]), size - 1) if wanted[1] and wanted[2] else size - 1
    if start > end:
        raise HubError(416, "Range Not Satisfiable", **{"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Response(blob.content[start : end + 1], 206, headers, media_type="application/octet-stream")


def target(ask: Ask) -> str:
    """The ref to commit to. Everybody who sees a repository may open a pull request."""
    ref = ask.part("revision") if ask.part("revision").startswith("refs/") else f"refs/heads/{ask.part('revision')}"
    if "create_pr" not in ask.request.query_params:
        ask.check_access("write")
    if ref not in ask.repository.refs:
        raise HubError(404, f"Invalid rev id: {ref}", "RevisionNotFound")
    return ref


@route(REPOSITORY + "/preupload/{revision}", "POST", need="propose")
def preupload(ask: Ask) -> dict[str, Any]:
    """How to send each file, and its present hash: the client leaves out unchanged files."""
    there, answer = ask.repository.refs[target(ask)].files, []
    for file in ask.json()["files"]:
        path, binary = file["path"], b"\0" in base64.b64decode(file["sample"])
        lfs = path.rpartition(".")[2] in LFS_SUFFIXES or file["size"] > LFS_SIZE or binary
        about = {"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False}
        answer.append(about | ({"oid": there[path].etag} if path in there else {}))
    return {"files": answer}


@route("/{kind}s/{namespace}/{name}/info/lfs/objects/batch", "POST", need="propose")
def lfs_batch(ask: Ask) -> JSONResponse:
    place, objects = ask.url(f"/_lfs/{ask.repository.kind}s/{ask.repository.id}"), []
    for wanted in ask.json()["objects"]:
        upload = {"actions": {"upload": {"href": f"{place}/{wanted['oid']}"}}}
        objects.append(wanted | ({} if wanted["oid"] in ask.repository.objects else upload))
    return JSONResponse({"transfer": "basic", "objects": objects}, media_type="application/vnd.git-lfs+json")


@route("/_lfs/{kind}s/{namespace}/{name}/{oid}", "PUT")
def lfs_put(ask: Ask) -> Response:
    """Without a token: the URL is the permission."""
    if hashlib.sha256(ask.body).hexdigest() != ask.part("oid"):
        raise HubError(400, "the content does not have the announced hash")
    ask.repository.objects[ask.part("oid")] = ask.body
    return Response()


@route(REPOSITORY + "/commit/{revision}", "POST", need="propose")
def commit(ask: Ask) -> dict[str, Any]:
    """Commits unless the parent is outdated, a file contains a token, or the card is wrong."""
    repository, ref = ask.repository, target(ask)
    header, *lines = ({"key": line["key"], **line["value"]} for line in map(json.loads, ask.body.splitlines()))
    if header.get("parentCommit") not in (None, repository.refs[ref].oid):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    changes: dict[str, Blob | None] = {}
    for line in lines:
        if line["key"] == "file":
            changes[line["path"]] = Blob(content=base64.b64decode(line["content"]))
        elif line["key"] == "lfsFile":
            changes[line["path"]] = Blob(content=repository.objects[line["oid"]], lfs=True)
        else:
            assert line["key"] == "deletedFile", line
            changes[line["path"]] = None
    for path, blob in changes.items():
        if blob and any(secret.encode() in blob.content for secret in USERS):
            raise HubError(400, f"Your push was rejected because it contains a valid Hugging Face token, in {path}")
    if (readme := changes.get("README.md")) and (errors := check_card(repository.kind, readme.content.decode())[0]):
        raise HubError(400, "Invalid metadata in README.md: " + "; ".join(errors))
    page, request = ask.url(f"/{WEB[repository.kind]}{repository.id}"), {}
    if "create_pr" in ask.request.query_params:
        repository.pull_requests += 1
        ref = f"refs/pr/{repository.pull_requests}"
        repository.refs[ref] = repository.head
        request = {"pullRequestUrl": f"{page}/discussions/{repository.pull_requests}"}
    made = repository.put(ref, changes, header["summary"], ask.user)
    return {"success": True, "commitOid": made.oid, "commitUrl": f"{page}/commit/{made.oid}", **request}


@route(REPOSITORY + "/discussions/{number}/merge", "POST", need="write")
def merge(ask: Ask) -> dict[str, Any]:
    """Puts the changes of a pull request with one commit onto main and removes its ref."""
    repository = ask.repository
    theirs = repository.refs.pop(f"refs/pr/{ask.part('number')}")
    assert theirs.parent
    before, head = theirs.parent.files, repository.head.files
    paths = [path for path in theirs.files.keys() | before.keys() if theirs.files.get(path) != before.get(path)]
    if clashing := [path for path in paths if head.get(path) not in (before.get(path), theirs.files.get(path))]:
        raise HubError(409, f"This pull request has conflicts in {', '.join(sorted(clashing))}")
    changes = {path: theirs.files.get(path) for path in paths}
    return {"oid": repository.put("refs/heads/main", changes, theirs.title, ask.user).oid}
