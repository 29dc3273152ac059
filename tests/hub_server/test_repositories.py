"""Repositories and their names: made, found, moved, deleted; branches and tags; who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import HfApi

from tests.hub_server.client import ClientError
from tests.hub_server.operations import create, get, put

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

pytestmark = pytest.mark.lowest


def whoami() -> str:
    name: str = HfApi().whoami()["name"]
    return name


def info(repo: str, kind: str) -> dict[str, Any]:
    found: Any = HfApi().repo_info(repo, repo_type=kind, files_metadata=True)
    siblings = {file.rfilename: (file.size, file.lfs.sha256 if file.lfs else None) for file in found.siblings or []}
    return {"id": found.id, "sha": found.sha, "private": found.private, "tags": found.tags, "siblings": siblings}


def move(repo: str, to: str) -> None:
    HfApi().move_repo(repo, to)


def delete(repo: str) -> None:
    HfApi().delete_repo(repo)


def settings(repo: str, **changes: Any) -> None:
    HfApi().update_repo_settings(repo, **changes)


def refs(repo: str) -> dict[str, str]:
    """Branches, a tag and names with slashes, made and deleted; what the client then lists."""
    api = HfApi()
    first = api.repo_info(repo).sha
    api.create_tag(repo, tag="step-1", revision=first)
    api.create_branch(repo, branch="exp/1", revision=first)
    api.create_branch(repo, branch="exp/1", exist_ok=True)
    api.upload_file(path_or_fileobj=b"2", path_in_repo="a.txt", repo_id=repo, revision="exp/1")
    api.create_tag(repo, tag="runs/2", revision="exp/1")
    api.create_branch(repo, branch="gone")
    api.delete_branch(repo, branch="gone")
    api.create_tag(repo, tag="gone")
    api.delete_tag(repo, tag="gone")
    listed = api.list_repo_refs(repo)
    return {ref.ref: ref.target_commit for ref in [*listed.branches, *listed.tags]}


def tag_twice(repo: str) -> None:
    HfApi().create_tag(repo, tag="v1")
    HfApi().create_tag(repo, tag="v1")


@pytest.mark.parametrize("kind", ["model", "dataset", "space"])
def test_a_repository_is_made_once(hub: Lane, kind: str) -> None:
    repo = hub.repository(kind)
    assert hub.owner.call(create, repo, kind) == repo
    assert hub.commits(repo, kind) == ["initial commit"]
    assert hub.owner.call(create, repo, kind, exist_ok=True) == repo
    with pytest.raises(ClientError, match=r"HfHubHTTPError: .*409"):
        hub.owner.call(create, repo, kind)
    assert hub.commits(repo, kind) == ["initial commit"]


def test_a_token_identifies_its_user(loopback: Loopback) -> None:
    assert [client.call(whoami) for client in (loopback.owner, loopback.reader, loopback.stranger)] == ["ada", "ada", "bob"]
    with pytest.raises(ClientError, match="LocalTokenNotFoundError"):
        loopback.nobody.call(whoami)
    with pytest.raises(ClientError, match="Invalid user token"):
        loopback.client("hf_nonsense").call(whoami)


def test_info_tells_the_commit_and_every_file(hub: Lane) -> None:
    repo = hub.repository("dataset")
    oid = hub.owner.call(put, repo, {"a.txt": b"12345", "b.bin": b"\0" * 9, "README.md": b"---\ntags: [lake]\n---\n"}, "dataset")
    found = hub.owner.call(info, repo, "dataset")
    assert (found["id"], found["sha"], found["private"]) == (repo, oid, True)
    assert "lake" in found["tags"]
    nine_zeros = "3e7077fd2f66d689e0cee6a7cf5b37bf2dca7c979af356d0a31cbc5c85605c7d"  # printf '\0%.0s' {1..9} | sha256sum
    assert found["siblings"]["a.txt"] == (5, None)
    assert found["siblings"]["b.bin"] == (9, nine_zeros)


def test_a_repository_moves_with_its_history(hub: Lane) -> None:
    old, new = hub.repository(), hub.repository()
    hub.owner.call(put, old, {"a.txt": b"1"})
    hub.owner.call(move, old, new)
    assert hub.files(new) == {"a.txt": b"1"}
    assert hub.commits(new) == ["Put", "initial commit"]


def test_a_deleted_repository_is_not_found(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(create, repo)
    hub.owner.call(delete, repo)
    with pytest.raises(ClientError, match="RepositoryNotFoundError"):
        hub.owner.call(info, repo, "model")


def test_branches_and_tags_may_have_slashes(hub: Lane) -> None:
    repo = hub.repository()
    first = hub.owner.call(put, repo, {"a.txt": b"1"})
    listed = hub.owner.call(refs, repo)
    second = listed["refs/heads/exp/1"]
    assert second != first
    expected = {"refs/heads/main": first, "refs/heads/exp/1": second, "refs/tags/step-1": first, "refs/tags/runs/2": second}
    assert listed == hub.refs(repo) == expected
    assert hub.files(repo, revision="runs/2") == {"a.txt": b"2"}
    assert hub.owner.call(get, repo, "a.txt", revision="exp/1") == b"2"


def test_a_tag_is_not_moved(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(create, repo)
    with pytest.raises(ClientError, match="409"):
        hub.owner.call(tag_twice, repo)


def test_a_private_repository_is_hidden_from_strangers_and_from_nobody(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    for client, status in ((loopback.stranger, 404), (loopback.nobody, 401)):
        for attempt in (
            lambda client=client: client.call(get, repo, "a.txt"),
            lambda client=client: client.call(info, repo, "model"),
        ):
            with pytest.raises(ClientError, match=f"(?s)RepositoryNotFoundError: {status} Client Error"):
                attempt()
    assert loopback.reader.call(get, repo, "a.txt") == b"1"


def test_a_repository_can_be_made_public_and_private_again(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.owner.call(settings, repo, private=False)
    assert loopback.nobody.call(get, repo, "a.txt") == b"1"
    loopback.owner.call(settings, repo, private=True)
    assert loopback.stored(repo).private


@pytest.mark.parametrize("who", ["reader", "stranger", "nobody"])
def test_only_the_owner_with_a_write_token_may_commit(loopback: Loopback, who: str) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo, private=False)
    with pytest.raises(ClientError, match="403" if who != "nobody" else "401"):
        getattr(loopback, who).call(put, repo, {"a.txt": b"1"})
    assert loopback.commits(repo) == ["initial commit"]


def test_nobody_makes_repositories_for_others(loopback: Loopback) -> None:
    with pytest.raises(ClientError, match="403 Forbidden"):
        loopback.stranger.call(create, "ada/mine")
    assert loopback.hub.repositories == {}


def test_a_gated_repository_shows_itself_but_not_its_files(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.owner.call(settings, repo, gated="manual", private=False)
    assert loopback.stranger.call(info, repo, "model")["id"] == repo
    with pytest.raises(ClientError, match=r"(?s)GatedRepoError: 403 Client Error"):
        loopback.stranger.call(get, repo, "a.txt")
    loopback.stored(repo).granted.add("bob")
    assert loopback.stranger.call(get, repo, "a.txt") == b"1"
