"""Discussions and pull requests: opened, talked about, merged, in conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.community import DiscussionWithDetails

from tests.hub_server.client import ClientError
from tests.hub_server.operations import create, get, put

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

pytestmark = pytest.mark.lowest


def propose(repo: str, content: bytes) -> int | None:
    """A commit that opens a pull request."""
    commit = HfApi().upload_file(
        path_or_fileobj=content, path_in_repo="a.txt", repo_id=repo, create_pr=True, commit_message="Mine"
    )
    return commit.pr_num


def draft(repo: str) -> int:
    """A pull request that is opened first, and filled afterwards."""
    api = HfApi()
    request = api.create_pull_request(repo, title="A draft", description="Why")
    revision = request.git_reference
    assert revision
    api.upload_file(path_or_fileobj=b"draft", path_in_repo="a.txt", repo_id=repo, revision=revision)
    return request.num


def shown(details: DiscussionWithDetails) -> dict[str, Any]:
    events = [event.type for event in details.events]
    return {"status": details.status, "conflicts": details.conflicting_files, "events": events, "author": details.author}


def details(repo: str, number: int) -> dict[str, Any]:
    return shown(HfApi().get_discussion_details(repo, number))


def talk(repo: str, number: int) -> dict[str, Any]:
    api = HfApi()
    api.comment_discussion(repo, number, "Well done")
    api.rename_discussion(repo, number, "Another title")
    return shown(api.get_discussion_details(repo, number))


def set_status(repo: str, number: int, status: Any) -> None:
    HfApi().change_discussion_status(repo, number, status)


def merge(repo: str, number: int) -> str | None:
    HfApi().merge_pull_request(repo, number)
    return HfApi().get_discussion_details(repo, number).merge_commit_oid


def discuss(repo: str) -> int:
    return HfApi().create_discussion(repo, title="A question").num


def listing(repo: str, **wanted: Any) -> list[int]:
    return [discussion.num for discussion in HfApi().get_repo_discussions(repo, **wanted)]


def test_a_pull_request_changes_main_only_when_it_is_merged(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"a.txt": b"old", "b.txt": b"b"})
    assert hub.owner.call(propose, repo, b"new") == 1
    assert hub.files(repo)["a.txt"] == b"old"
    assert hub.files(repo, revision="refs/pr/1") == {"a.txt": b"new", "b.txt": b"b"}
    assert hub.owner.call(get, repo, "a.txt", revision="refs/pr/1") == b"new"
    merged = hub.owner.call(merge, repo, 1)
    assert hub.files(repo) == {"a.txt": b"new", "b.txt": b"b"}
    assert hub.refs(repo)["refs/heads/main"] == merged
    assert hub.owner.call(details, repo, 1)["status"] == "merged"


def test_a_stranger_may_propose_but_not_merge(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo, private=False)
    assert loopback.stranger.call(propose, repo, b"mine") == 1
    assert loopback.owner.call(details, repo, 1)["author"] == "bob"
    with pytest.raises(ClientError, match="403"):
        loopback.stranger.call(merge, repo, 1)
    assert loopback.files(repo) == {}
    assert loopback.files(repo, revision="refs/pr/1") == {"a.txt": b"mine"}


def test_a_draft_is_opened_before_it_is_merged(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    number = loopback.owner.call(draft, repo)
    assert loopback.owner.call(details, repo, number)["status"] == "draft"
    with pytest.raises(ClientError, match="403"):
        loopback.owner.call(merge, repo, number)
    loopback.owner.call(set_status, repo, number, "open")
    loopback.owner.call(merge, repo, number)
    assert loopback.commits(repo) == [f"A draft (#{number})", "initial commit"]
    events = ["comment", "commit", "status-change", "status-change"]
    assert loopback.owner.call(details, repo, number)["events"] == events


def test_a_pull_request_in_conflict_is_not_merged(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"old"})
    loopback.owner.call(propose, repo, b"new")
    loopback.owner.call(put, repo, {"a.txt": b"newer"})
    assert loopback.owner.call(details, repo, 1)["conflicts"] == ["a.txt"]
    with pytest.raises(ClientError, match="409"):
        loopback.owner.call(merge, repo, 1)
    assert loopback.files(repo) == {"a.txt": b"newer"}


def test_users_discuss(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(create, repo)
    assert hub.owner.call(discuss, repo) == 1
    assert hub.owner.call(talk, repo, 1)["events"] == ["comment", "comment", "title-change"]


def test_discussions_are_listed_by_kind_and_status_and_in_pages(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    loopback.owner.call(discuss, repo)
    loopback.owner.call(propose, repo, b"1")
    loopback.owner.call(discuss, repo)
    loopback.owner.call(set_status, repo, 1, "closed")
    loopback.hub.page_size = 2
    assert loopback.owner.call(listing, repo) == [3, 2, 1]
    assert loopback.owner.call(listing, repo, discussion_type="pull_request") == [2]
    assert loopback.owner.call(listing, repo, discussion_status="closed") == [1]
