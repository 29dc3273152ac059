"""The unmodified client uploads, reads, is refused and retries on the loopback Hub as on the real one."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, snapshot_download

from tests.hub_server.cards import check_card
from tests.hub_server.client import ClientError
from tests.hub_server.faults import KNOWN, Faults
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import create, get, put

pytestmark = pytest.mark.lowest

BINARY = bytes(range(256)) * 20


def change_many(repo: str) -> None:
    operations: list[Any] = [
        CommitOperationAdd("new.txt", b"new"),
        CommitOperationCopy("b.bin", "copies/b.bin"),
        CommitOperationDelete("a.txt"),
        CommitOperationDelete("old/"),
    ]
    HfApi().create_commit(repo, operations, commit_message="Change many")


def listing(repo: str) -> list[str]:
    return [entry.path for entry in HfApi().list_repo_tree(repo, recursive=True) if entry.path != ".gitattributes"]


def snapshot(repo: str, revision: str | None = None) -> dict[str, bytes]:
    folder = Path(snapshot_download(repo, revision=revision))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def branches_and_tags(repo: str) -> dict[str, str]:
    api = HfApi()
    first = api.repo_info(repo).sha
    api.create_tag(repo, tag="step-1", revision=first)
    api.create_branch(repo, branch="exp/1", revision=first)
    api.upload_file(path_or_fileobj=b"2", path_in_repo="a.txt", repo_id=repo, revision="exp/1")
    api.create_tag(repo, tag="gone")
    api.delete_tag(repo, tag="gone")
    listed = api.list_repo_refs(repo)
    return {ref.ref: ref.target_commit for ref in [*listed.branches, *listed.tags]}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def connect_elsewhere() -> None:
    socket.create_connection(("192.0.2.1", 443), timeout=5)  # an address reserved for documentation


def connect_elsewhere_in_a_child() -> None:
    subprocess.run([sys.executable, "-c", "import socket; socket.create_connection(('192.0.2.1', 443), 5)"], check=True)


def test_commits_add_copy_and_delete_and_equal_content_is_sent_once(loopback: Loopback) -> None:
    repo, sha256 = loopback.repository(), hashlib.sha256(BINARY).hexdigest()
    loopback.owner.call(put, repo, {"a.txt": b"a", "b.bin": BINARY, "old/x": b"x", "older": b"z"})
    kept = loopback.stored(repo).head.files
    assert (kept["b.bin"].lfs, kept["b.bin"].sha256, kept["a.txt"].lfs) == (True, sha256, False)
    loopback.owner.call(put, repo, {"a.txt": b"a", "b.bin": BINARY})  # no commit
    loopback.owner.call(change_many, repo)
    assert loopback.files(repo) == {"b.bin": BINARY, "copies/b.bin": BINARY, "new.txt": b"new", "older": b"z"}
    assert loopback.commits(repo) == ["Change many", "Put", "initial commit"]
    assert loopback.requests("PUT ") == [f"PUT /_lfs/model/{repo}/{sha256}"]
    assert loopback.owner.call(listing, repo) == ["b.bin", "copies", "copies/b.bin", "new.txt", "older"]


def test_a_commit_on_an_old_parent_is_refused_and_a_race_is_noticed(loopback: Loopback) -> None:
    repo = loopback.repository()
    parent = loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.fail("race")
    with pytest.raises(ClientError, match="412"):
        loopback.owner.call(put, repo, {"a.txt": b"2"}, parent=parent)
    assert loopback.commits(repo)[0] == "Somebody else's commit"


def test_branches_and_tags_are_listed_and_read(loopback: Loopback) -> None:
    repo = loopback.repository()
    first = loopback.owner.call(put, repo, {"a.txt": b"1"})
    listed = loopback.owner.call(branches_and_tags, repo)
    assert listed == loopback.refs(repo)
    assert (listed["refs/tags/step-1"], {*listed}) == (first, {"refs/heads/main", "refs/heads/exp/1", "refs/tags/step-1"})
    assert loopback.owner.call(get, repo, "a.txt", revision="exp/1") == b"2"


def test_a_pull_request_leaves_main_alone(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo, private=False)
    loopback.stranger.call(put, repo, {"a.txt": b"1"}, pr=True)
    assert loopback.files(repo) == {}
    assert loopback.files(repo, revision="refs/pr/1") == {"a.txt": b"1"}


def test_long_lists_come_in_pages(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {f"{n:02}.txt": b"" for n in range(11)}
    loopback.owner.call(put, repo, files)
    loopback.hub.page_size = 5
    assert loopback.owner.call(listing, repo) == sorted(files)
    assert len(loopback.requests("GET .*/tree/")) == 3  # 11 files and .gitattributes


def test_a_pinned_snapshot_in_the_cache_needs_no_request_and_is_there_offline(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {"a.txt": b"1", "data/b.bin": BINARY}
    oid = loopback.owner.call(put, repo, files)
    first = loopback.owner.call(snapshot, repo, oid)
    assert {path: content for path, content in first.items() if path != ".gitattributes"} == files
    loopback.forget_requests()
    assert loopback.owner.call(snapshot, repo, oid) == loopback.client(HF_HUB_OFFLINE="1").call(snapshot, repo, oid) == first
    assert loopback.requests() == []


def test_a_private_or_gated_repository_is_refused_to_others(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    for client, status in ((loopback.stranger, 404), (loopback.nobody, 401)):
        with pytest.raises(ClientError, match=f"(?s)RepositoryNotFoundError: {status} Client Error"):
            client.call(get, repo, "a.txt")
    assert loopback.reader.call(get, repo, "a.txt") == b"1"
    with pytest.raises(ClientError, match="403"):
        loopback.reader.call(put, repo, {"a.txt": b"2"})
    loopback.stored(repo).private, loopback.stored(repo).gated = False, "manual"
    loopback.machine.new_home()  # the client prefers its cache to an error
    with pytest.raises(ClientError, match=r"(?s)GatedRepoError: 403 Client Error"):
        loopback.stranger.call(get, repo, "a.txt")
    with pytest.raises(ClientError, match="RemoteEntryNotFoundError: 404"):
        loopback.owner.call(get, repo, "nothing.txt")


def test_a_push_with_a_token_or_a_wrong_card_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    with pytest.raises(ClientError, match=r"(?s)BadRequestError: .*contains a valid Hugging Face token, in .env"):
        loopback.owner.call(put, repo, {".env": b"HF_TOKEN=hf_test_owner\n"})
    assert loopback.files(repo) == {}
    card = "---\nlicense: {}\ncolorFrom: {}\nsdk: static\n---\n"
    assert check_card("space", card.format("mit", "red")) == ([], [])
    errors, _ = check_card("space", card.format("nope", "mauve"))
    assert [error.split()[0] for error in errors] == ['"license"', '"colorFrom"']


def test_the_client_retries_where_it_can_and_a_lost_answer_is_no_lost_commit(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("unavailable", where="POST .*/preupload/")
    loopback.fail("unavailable", where="PUT /_lfs/")
    loopback.fail("lost_answer")
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.files(repo) == {"b.bin": BINARY}
    assert [len(loopback.requests(part)) for part in ("/preupload/", "PUT ", "/commit/")] == [2, 2, 1]
    loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.commits(repo) == ["Put", "initial commit"]


def test_a_fault_lets_some_requests_pass_and_ends() -> None:
    faults = Faults()
    faults.add("unavailable", where="GET /a", after=1, times=2)
    faults.add("payment_required")
    met = [faults.meet(line, b"") for line in ("GET /b", "GET /a", "GET /a", "GET /a", "GET /a")]
    assert [fault.status if fault else None for fault in met] == [None, None, 503, 503, None]
    assert faults.meet("POST /api/repos/create", b'{"name":"x","type":"space"}') == KNOWN["payment_required"]


def test_a_killed_client_and_one_that_asks_elsewhere_are_noticed(loopback: Loopback) -> None:
    assert loopback.owner.attempt(die).code == -signal.SIGKILL
    for attempt in (connect_elsewhere, connect_elsewhere_in_a_child):
        finished = loopback.owner.attempt(attempt)
        assert "no request leaves this machine" in finished.err
        assert len(loopback.strays()) == 1
