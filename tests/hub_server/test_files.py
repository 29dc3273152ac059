"""Files: up, down, listed, cached."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, HfFileSystem, snapshot_download

from tests.hub_server.client import ClientError
from tests.hub_server.operations import create, get, put

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

pytestmark = pytest.mark.lowest

BINARY = bytes(range(256)) * 20


def upload_file(repo: str, path: str, content: bytes) -> str:
    HfApi().create_repo(repo, private=True, exist_ok=True)
    return HfApi().upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=repo).oid


def upload_folder(repo: str, files: dict[str, bytes], message: str | None = None) -> str:
    folder = Path("folder")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    HfApi().create_repo(repo, private=True, exist_ok=True)
    return HfApi().upload_folder(repo_id=repo, folder_path=folder, commit_message=message).oid


def change_many(repo: str) -> None:
    operations: list[CommitOperationAdd | CommitOperationCopy | CommitOperationDelete] = [
        CommitOperationAdd("new.txt", b"new"),
        CommitOperationCopy("a.txt", "copies/a.txt"),
        CommitOperationCopy("b.bin", "copies/b.bin"),
        CommitOperationDelete("a.txt"),
        CommitOperationDelete("old/"),
    ]
    HfApi().create_commit(repo, operations, commit_message="Change many")


def listing(repo: str, folder: str | None = None, recursive: bool = True, expand: bool = False) -> list[str]:
    tree = HfApi().list_repo_tree(repo, folder, recursive=recursive, expand=expand)
    return [entry.path for entry in tree if entry.path != ".gitattributes"]


def last_commits(repo: str) -> dict[str, str]:
    tree = HfApi().list_repo_tree(repo, recursive=True, expand=True)
    return {entry.path: entry.last_commit.title for entry in tree if entry.last_commit}


def present(repo: str, paths: list[str]) -> list[str]:
    return [entry.path for entry in HfApi().get_paths_info(repo, paths)]


def snapshot(repo: str, revision: str | None = None) -> dict[str, bytes]:
    folder = Path(snapshot_download(repo, revision=revision))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def slice_of(repo: str, path: str, start: int, end: int) -> bytes:
    with HfFileSystem().open(f"{repo}/{path}", "rb", block_size=64) as file:
        file.seek(start)
        part: bytes = file.read(end - start)
        return part


def test_a_file_goes_up_as_one_commit(hub: Lane) -> None:
    repo = hub.repository()
    oid = hub.owner.call(upload_file, repo, "a.txt", b"hello")
    assert hub.files(repo) == {"a.txt": b"hello"}
    assert hub.refs(repo) == {"refs/heads/main": oid}
    assert hub.commits(repo) == ["Upload a.txt with huggingface_hub", "initial commit"]


def test_a_folder_goes_up_as_one_commit(hub: Lane) -> None:
    repo, files = hub.repository(), {"a.txt": b"a", "data/b.bin": BINARY, "data/deep/c.json": b"{}", "empty.txt": b""}
    hub.owner.call(upload_folder, repo, files, "All of it")
    assert hub.files(repo) == files
    assert hub.commits(repo) == ["All of it", "initial commit"]


def test_a_second_push_of_the_same_content_makes_no_commit(hub: Lane) -> None:
    repo, files = hub.repository(), {"a.txt": b"a", "b.bin": BINARY}
    first = hub.owner.call(upload_folder, repo, files)
    assert hub.owner.call(upload_folder, repo, files) == first
    assert len(hub.commits(repo)) == 2


def test_binary_files_go_through_lfs_and_are_sent_once(loopback: Loopback) -> None:
    repo, sha256 = loopback.repository(), hashlib.sha256(BINARY).hexdigest()
    loopback.owner.call(put, repo, {"b.bin": BINARY, "a.txt": b"a"})
    kept = loopback.stored(repo).head.files
    assert (kept["b.bin"].lfs, kept["b.bin"].sha256, kept["a.txt"].lfs) == (True, sha256, False)
    assert loopback.requests("PUT ") == [f"PUT /_lfs/model/{repo}/{sha256}"]
    loopback.owner.call(put, repo, {"again.bin": BINARY})
    assert loopback.files(repo)["again.bin"] == BINARY
    assert len(loopback.requests("PUT ")) == 1


def test_a_large_file_goes_up_in_parts(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.hub.part_size = 1000
    loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.files(repo) == {"b.bin": BINARY}
    assert [seen.sent for seen in loopback.server.world.seen if seen.line.startswith("PUT ")] == [1000] * 5 + [120]


def test_one_commit_adds_copies_and_deletes(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"a.txt": b"a", "b.bin": BINARY, "old/x": b"x", "old/deep/y": b"y", "older": b"z"})
    hub.owner.call(change_many, repo)
    kept = {"b.bin": BINARY, "copies/a.txt": b"a", "copies/b.bin": BINARY, "new.txt": b"new", "older": b"z"}
    assert hub.files(repo) == kept
    assert hub.commits(repo) == ["Change many", "Put", "initial commit"]


def test_a_commit_on_an_old_parent_is_refused(hub: Lane) -> None:
    repo = hub.repository()
    first = hub.owner.call(put, repo, {"a.txt": b"1"})
    hub.owner.call(put, repo, {"a.txt": b"2"}, parent=first)
    with pytest.raises(ClientError, match="412"):
        hub.owner.call(put, repo, {"a.txt": b"3"}, parent=first)
    assert hub.files(repo) == {"a.txt": b"2"}


def test_a_tree_shows_files_and_folders(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"a.txt": b"a", "data/b.txt": b"b", "data/deep/c.txt": b"c"})
    assert hub.owner.call(listing, repo) == ["a.txt", "data", "data/b.txt", "data/deep", "data/deep/c.txt"]
    assert hub.owner.call(listing, repo, recursive=False) == ["a.txt", "data"]
    assert hub.owner.call(listing, repo, "data", recursive=False) == ["data/b.txt", "data/deep"]
    assert hub.owner.call(present, repo, ["a.txt", "data", "nothing"]) == ["a.txt", "data"]
    with pytest.raises(ClientError, match="RemoteEntryNotFoundError"):
        hub.owner.call(listing, repo, "nothing")


def test_a_tree_knows_who_changed_a_file_last(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"a.txt": b"1", "data/b.txt": b"1"})
    hub.owner.call(upload_file, repo, "data/c.txt", b"1")
    titles = hub.owner.call(last_commits, repo)
    upload = "Upload data/c.txt with huggingface_hub"
    assert (titles["a.txt"], titles["data/b.txt"], titles["data/c.txt"], titles["data"]) == ("Put", "Put", upload, upload)


def test_long_lists_come_in_pages(loopback: Loopback) -> None:
    repo = loopback.repository()
    files = {f"{n:02}.txt": b"" for n in range(11)}
    loopback.owner.call(put, repo, files)
    loopback.hub.page_size = 5
    assert loopback.owner.call(listing, repo) == sorted(files)
    assert len(loopback.requests("GET .*/tree/")) == 3  # 11 files and .gitattributes


def test_a_second_download_asks_once_whether_the_file_is_still_the_same(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1", "b.bin": BINARY})
    for path, content in (("a.txt", b"1"), ("b.bin", BINARY)):
        loopback.forget_requests()
        assert loopback.owner.call(get, repo, path) == content
        resolve = f"/{repo}/resolve/main/{path}"
        assert loopback.requests() == [f"HEAD {resolve}", f"GET {resolve}"]
        loopback.forget_requests()
        assert loopback.owner.call(get, repo, path) == content
        assert loopback.requests() == [f"HEAD {resolve}"]


def test_a_pinned_snapshot_in_the_cache_needs_no_request(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {"a.txt": b"1", "data/b.bin": BINARY}
    oid = loopback.owner.call(put, repo, files)
    first = loopback.owner.call(snapshot, repo, oid)
    assert {path: content for path, content in first.items() if path != ".gitattributes"} == files
    loopback.forget_requests()
    assert loopback.owner.call(snapshot, repo, oid) == first
    assert loopback.requests() == []


def test_a_cached_file_is_there_when_the_hub_cannot_be_reached(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.owner.call(get, repo, "a.txt")
    offline = loopback.client(HF_HUB_OFFLINE="1")
    loopback.forget_requests()
    assert offline.call(get, repo, "a.txt") == b"1"
    with pytest.raises(ClientError, match="LocalEntryNotFoundError"):
        offline.call(get, repo, "b.txt")
    assert loopback.requests() == []


def test_missing_files_and_repositories_are_reported(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(create, repo)
    with pytest.raises(ClientError, match="RemoteEntryNotFoundError: 404"):
        hub.owner.call(get, repo, "nothing.txt")
    with pytest.raises(ClientError, match="RevisionNotFoundError: 404"):
        hub.owner.call(get, repo, "a.txt", revision="nothing")
    with pytest.raises(ClientError, match="RepositoryNotFoundError: 404"):
        hub.owner.call(get, hub.repository(), "a.txt")


def test_a_part_of_a_file_can_be_read(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"b.bin": BINARY})
    assert hub.owner.call(slice_of, repo, "b.bin", 1000, 1010) == BINARY[1000:1010]


def test_a_push_with_a_token_in_it_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    with pytest.raises(ClientError, match=r"(?s)BadRequestError: .*contains a valid Hugging Face token, in .env"):
        loopback.owner.call(put, repo, {".env": b"HF_TOKEN=hf_test_owner\n"})
    assert loopback.files(repo) == {}
