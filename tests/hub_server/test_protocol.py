"""The unmodified client uploads, reads, is refused and retries on the Hub on loopback."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, snapshot_download

from tests.hub_server.app import COMMIT, Fault, World
from tests.hub_server.cards import check_card
from tests.hub_server.client import ClientError, clean_environment, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server

__all__ = ["loopback", "loopback_server"]

pytestmark = pytest.mark.lowest

ROOT = Path(__file__).parents[2]
ASK = "from huggingface_hub import HfApi; print(HfApi().create_repo('lake').repo_id)"
BINARY = bytes(range(256)) * 20


def snapshot(repo: str, revision: str) -> dict[str, bytes]:
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


def test_equal_content_is_sent_once_and_large_files_go_to_lfs(loopback: Loopback) -> None:
    repo, sha256 = loopback.repository(), hashlib.sha256(BINARY).hexdigest()
    files = {"a.txt": b"a", "data/b.bin": BINARY}
    for _ in range(2):
        loopback.owner.call(put, repo, files)
    stored = loopback.stored(repo).head.files
    assert (stored["data/b.bin"].lfs, stored["data/b.bin"].sha256, stored["a.txt"].lfs) == (True, sha256, False)
    assert (loopback.files(repo), loopback.commits(repo)) == (files, ["Put", "initial commit"])
    assert loopback.requests("PUT ") == [f"PUT /_lfs/models/{repo}/{sha256}"]


def test_a_commit_on_an_old_parent_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    parent = loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.overtake(repo, {})
    with pytest.raises(ClientError, match="412"):
        loopback.owner.call(put, repo, {"a.txt": b"2"}, parent_commit=parent)
    assert loopback.commits(repo)[0] == "Another's commit"


def test_branches_and_tags_are_listed(loopback: Loopback) -> None:
    repo = loopback.repository()
    first = loopback.owner.call(put, repo, {"a.txt": b"1"})
    listed = loopback.owner.call(branches_and_tags, repo)
    assert listed == loopback.refs(repo)
    assert (listed["refs/tags/step-1"], {*listed}) == (first, {"refs/tags/step-1", "refs/heads/main", "refs/heads/exp/1"})


def test_a_pinned_snapshot_in_the_cache_needs_no_request(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {"a.txt": b"1", "data/b.bin": BINARY}
    oid = loopback.owner.call(put, repo, files)
    first = loopback.owner.call(snapshot, repo, oid)
    assert files.items() <= first.items()
    loopback.world.requests.clear()
    assert loopback.owner.call(snapshot, repo, oid) == loopback.client(HF_HUB_OFFLINE="1").call(snapshot, repo, oid) == first
    assert loopback.requests() == []


def test_a_push_with_a_token_or_a_wrong_card_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    with pytest.raises(ClientError, match=r"(?s)BadRequestError: .*contains a valid Hugging Face token, in .env"):
        loopback.owner.call(put, repo, {".env": b"HF_TOKEN=hf_test_owner\n"})
    assert loopback.files(repo) == {}
    card = "---\nlicense: {}\ncolorFrom: {}\nsdk: static\n---\n"
    assert check_card("space", card.format("mit", "red")) == ([], [])
    assert [error.split()[0] for error in check_card("space", card.format("nope", "mauve"))[0]] == ['"license"', '"colorFrom"']


def test_the_client_retries_where_it_can_and_a_lost_answer_is_no_lost_commit(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("POST .*/preupload/")
    loopback.fail("PUT /_lfs/")
    loopback.fail(COMMIT, status=0, truncate=0)
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.files(repo) == {"b.bin": BINARY}
    assert [len(loopback.requests(part)) for part in ("/preupload/", "PUT ", "/commit/")] == [2, 2, 1]


def test_a_fault_lets_some_requests_pass_and_ends() -> None:
    world = World(faults=[Fault(where="GET /a", after=1, times=2)])
    met: list[Any] = [world.next_fault(line) for line in ("GET /b", "GET /a", "GET /a", "GET /a", "GET /a")]
    assert [fault.status if fault else None for fault in met] == [None, None, 503, 503, None]


def test_a_killed_client_and_a_request_to_another_machine_are_noticed(loopback: Loopback) -> None:
    assert loopback.owner.attempt(die).code == -signal.SIGKILL
    for attempt in (connect_elsewhere, connect_elsewhere_in_a_child):
        assert "no request leaves this machine" in loopback.owner.attempt(attempt).err
        assert len(loopback.strays()) == 1


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """The exports that a server started by hand prints."""
    with subprocess.Popen([sys.executable, "-m", "tests.hub_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        exports = " ".join(line for line in (server.stdout.readline() for _ in range(4)) if line.startswith("export "))
        yield clean_environment() | dict(re.findall(r"(\w+)=(\S+)", exports))
        server.terminate()


def test_a_client_finds_a_server_started_by_hand(environment: dict[str, str]) -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], env=environment, check=True, capture_output=True, text=True)
    assert asked.stdout == "ada/lake\n"
