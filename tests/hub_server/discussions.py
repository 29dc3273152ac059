"""Discussions and pull requests."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.hub_server.access import body_of, hub_of, on_repository, readable, writable, writer
from tests.hub_server.store import Discussion, HubError, Repository, now


def open_discussion(
    repository: Repository, author: str, title: str, description: str, *, pull_request: bool, status: str
) -> Discussion:
    """A pull request starts from the head of main, as refs/pr/NUMBER."""
    number = len(repository.discussions) + 1
    base = repository.head if pull_request else None
    discussion = Discussion(number=number, title=title, author=author, base=base, status=status)
    repository.discussions.append(discussion)
    add_comment(discussion, author, description)
    if base:
        repository.refs[f"refs/pr/{number}"] = base
    return discussion


def add_comment(discussion: Discussion, author: str, text: str) -> dict[str, Any]:
    latest = {"raw": text, "html": text, "updatedAt": now(), "author": {"name": author}}
    return discussion.record("comment", author, {"edited": False, "hidden": False, "latest": latest, "history": [latest]})


def conflicts(repository: Repository, discussion: Discussion) -> list[str]:
    """Files that main and the pull request have both changed since, not to the same."""
    assert discussion.base is not None
    ours = repository.head.changes(discussion.base)
    theirs = repository.refs[f"refs/pr/{discussion.number}"].changes(discussion.base)
    return sorted(path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path])


def summary(repository: Repository, discussion: Discussion) -> dict[str, Any]:
    return {
        "num": discussion.number,
        "title": discussion.title,
        "status": discussion.status,
        "author": {"name": discussion.author},
        "createdAt": discussion.created,
        "repo": {"name": repository.id, "type": repository.kind},
        "isPullRequest": discussion.base is not None,
    }


def details(repository: Repository, discussion: Discussion) -> dict[str, Any]:
    described = {**summary(repository, discussion), "events": discussion.events}
    if discussion.base is None:
        return described
    changes = {"base": "refs/heads/main"} | ({"mergeCommitId": discussion.merged_as} if discussion.merged_as else {})
    still_open = discussion.status in ("open", "draft")
    clashing: list[str] = conflicts(repository, discussion) if still_open else []
    return described | {"changes": changes, "filesWithConflicts": clashing, "diff": ""}


def named(request: Request, repository: Repository) -> Discussion:
    number: int = request.path_params["number"]
    if not 1 <= number <= len(repository.discussions):
        raise HubError(404, f"no discussion {number}")
    return repository.discussions[number - 1]


async def create(request: Request) -> Response:
    repository, body, author = readable(request), await body_of(request), writer(request).user
    pull_request = bool(body.get("pullRequest"))
    status = "draft" if pull_request else "open"
    discussion = open_discussion(repository, author, body["title"], body["description"], pull_request=pull_request, status=status)
    return JSONResponse(summary(repository, discussion))


async def index(request: Request) -> Response:
    repository, asked = readable(request), request.query_params
    wanted = [
        discussion
        for discussion in reversed(repository.discussions)
        if asked.get("author", discussion.author) == discussion.author
        and asked.get("type", "all") in ("all", "pull_request" if discussion.base else "discussion")
        and asked.get("status", "all") in ("all", "closed" if discussion.status in ("closed", "merged") else "open")
    ]
    size = hub_of(request).page_size
    start = size * int(asked.get("p", 0))
    shown = [summary(repository, discussion) for discussion in wanted[start : start + size]]
    return JSONResponse({"discussions": shown, "count": len(wanted), "start": start})


async def show(request: Request) -> Response:
    repository = readable(request)
    return JSONResponse(details(repository, named(request, repository)))


async def comment(request: Request) -> Response:
    repository, author, body = readable(request), writer(request).user, await body_of(request)
    return JSONResponse({"newMessage": add_comment(named(request, repository), author, body["comment"])})


async def change_status(request: Request) -> Response:
    repository, author, body = writable(request), writer(request).user, await body_of(request)
    discussion = named(request, repository)
    discussion.status = body["status"]
    return JSONResponse({"newStatus": discussion.record("status-change", author, {"status": body["status"]})})


async def change_title(request: Request) -> Response:
    repository, author, body = writable(request), writer(request).user, await body_of(request)
    discussion = named(request, repository)
    event = discussion.record("title-change", author, {"from": discussion.title, "to": body["title"]})
    discussion.title = body["title"]
    return JSONResponse({"newTitle": event})


async def merge(request: Request) -> Response:
    """One commit on main with what the pull request changed. A draft has to be opened first."""
    repository, author, body = writable(request), writer(request).user, await body_of(request)
    discussion = named(request, repository)
    if discussion.base is None or discussion.status != "open":
        raise HubError(403, "This is not an open pull request")
    if clashing := conflicts(repository, discussion):
        raise HubError(409, f"This pull request has conflicts in {', '.join(clashing)}")
    changes = repository.refs[f"refs/pr/{discussion.number}"].changes(discussion.base)
    title = f"{discussion.title} (#{discussion.number})"
    merged = repository.put("refs/heads/main", changes, title, author, body.get("comment") or "")
    discussion.status, discussion.merged_as = "merged", merged.oid
    discussion.record("status-change", author, {"status": "merged"})
    return JSONResponse({"oid": merged.oid})


routes = [
    on_repository("/discussions", index),
    on_repository("/discussions", create, "POST"),
    on_repository("/discussions/{number:int}", show),
    on_repository("/discussions/{number:int}/comment", comment, "POST"),
    on_repository("/discussions/{number:int}/status", change_status, "POST"),
    on_repository("/discussions/{number:int}/title", change_title, "POST"),
    on_repository("/discussions/{number:int}/merge", merge, "POST"),
]
