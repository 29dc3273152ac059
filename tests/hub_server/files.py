"""Reading: trees, paths and the files themselves."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.access import downloadable, on_repository, page, parameter, readable
from tests.hub_server.store import Blob, Commit, HubError


def folders_of(files: Mapping[str, Blob]) -> set[str]:
    return {path[:end] for path in files for end, character in enumerate(path) if character == "/"}


def last_change(commit: Commit, path: str) -> dict[str, str]:
    """The latest commit that changed a file, or something in a folder."""

    def below(files: Mapping[str, Blob]) -> dict[str, Blob]:
        return {name: blob for name, blob in files.items() if name == path or name.startswith(f"{path}/")}

    changed = (at for at in commit.history() if at.parent is None or below(at.files) != below(at.parent.files))
    latest = next(changed)
    return {"id": latest.oid, "title": latest.title, "date": latest.date}


def entry(commit: Commit, path: str, expand: bool) -> dict[str, Any]:
    """A file or a folder as trees show it."""
    extra: dict[str, Any] = {"lastCommit": last_change(commit, path)} if expand else {}
    blob = commit.files.get(path)
    if blob is None:
        inside = sorted((name, file.oid) for name, file in commit.files.items() if name.startswith(f"{path}/"))
        return {"type": "directory", "oid": hashlib.sha1(repr(inside).encode()).hexdigest(), "size": 0, "path": path, **extra}
    if blob.lfs:
        extra["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": len(blob.pointer)}
    return {"type": "file", "oid": blob.oid, "size": len(blob.content), "path": path, **extra}


def is_on(value: str) -> bool:
    return value.lower() in ("true", "1")


async def tree(request: Request) -> Response:
    commit = readable(request).find(parameter(request, "revision"))
    root = parameter(request, "path").strip("/") if "path" in request.path_params else ""
    recursive, expand = (is_on(request.query_params.get(name, "")) for name in ("recursive", "expand"))
    folders = folders_of(commit.files)
    if root and root not in folders:
        raise not_there(commit, root)
    below = f"{root}/" if root else ""
    paths = [path for path in folders | set(commit.files) if path.startswith(below)]
    wanted = [path for path in sorted(paths) if recursive or "/" not in path.removeprefix(below)]
    return page(request, [entry(commit, path, expand) for path in wanted])


async def paths_info(request: Request) -> Response:
    """Those of the paths asked for that are there. The only body that is sent as a form."""
    commit = readable(request).find(parameter(request, "revision"))
    form = parse_qs((await request.body()).decode())
    there = folders_of(commit.files) | set(commit.files)
    expand = is_on(form.get("expand", [""])[0])
    return JSONResponse([entry(commit, path, expand) for path in form.get("paths", []) if path in there])


def not_there(commit: Commit, path: str) -> HubError:
    """With the commit: a client remembers that the file is not in it."""
    refusal = HubError(404, f"{path} does not exist", "EntryNotFound")
    refusal.headers["X-Repo-Commit"] = commit.oid
    return refusal


def part_of(content: bytes, wanted: str | None) -> tuple[int, bytes, dict[str, str]]:
    """Status, bytes and headers for a `Range` header: `bytes=2-5`, `bytes=2-` or `bytes=-5`.

    >>> part_of(b"0123456789", "bytes=2-5")
    (206, b'2345', {'Content-Range': 'bytes 2-5/10'})
    """
    size = len(content)
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
    if match is None or match.groups() == ("", ""):
        return 200, content, {}
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        refusal = HubError(416, "Range Not Satisfiable")
        refusal.headers["Content-Range"] = f"bytes */{size}"
        raise refusal
    return 206, content[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{size}"}


async def resolve(request: Request) -> Response:
    """A file. The real Hub redirects to a storage of another name for LFS; the client takes either."""
    repository, path = downloadable(request), parameter(request, "path")
    commit = repository.find(parameter(request, "revision"))
    blob = commit.files.get(path)
    if blob is None:
        raise not_there(commit, path)
    status, content, headers = part_of(blob.content, request.headers.get("range"))
    headers |= {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
    return Response(content, status, headers, media_type=mimetypes.guess_type(path)[0] or "application/octet-stream")


routes = [
    on_repository("/tree/{revision}", tree),
    on_repository("/tree/{revision}/{path:path}", tree),
    on_repository("/paths-info/{revision}", paths_info, "POST"),
    Route("/{kind}s/{namespace}/{name}/resolve/{revision}/{path:path}", resolve),
]
