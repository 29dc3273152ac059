"""What the client does when something fails, and what is on the Hub then."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.hub_server.client import ClientError
from tests.hub_server.faults import KNOWN, Fault, Faults
from tests.hub_server.operations import create, get, put
from tests.hub_server.test_files import snapshot

if TYPE_CHECKING:
    from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.lowest

BINARY = bytes(range(256)) * 20


def test_an_upload_is_tried_again_when_the_hub_is_unavailable(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("unavailable", where="POST .*/preupload/")
    loopback.fail("unavailable", where="PUT /_lfs/")
    loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.files(repo) == {"b.bin": BINARY}
    assert len(loopback.requests("/preupload/")) == len(loopback.requests("PUT ")) == 2
    assert len(loopback.requests("/commit/")) == 1


def test_making_a_repository_is_not_tried_again(loopback: Loopback) -> None:
    loopback.fail("unavailable", where="/repos/create")
    with pytest.raises(ClientError, match="503"):
        loopback.owner.call(create, loopback.repository())
    assert loopback.hub.repositories == {}
    assert len(loopback.requests()) == 1


def test_a_rate_limit_is_waited_for(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    loopback.fail("rate_limited", where="/preupload/")
    start = time.monotonic()
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    assert time.monotonic() - start >= 2  # the second that the header asks for, and one more
    assert loopback.files(repo) == {"a.txt": b"1"}


def test_a_rate_limit_on_a_commit_is_told_with_the_time_to_wait(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("rate_limited", where="/commit/")
    with pytest.raises(ClientError, match=r"(?s)429 Too Many Requests.*Retry after 1 seconds"):
        loopback.owner.call(put, repo, {"a.txt": b"1"})
    assert loopback.files(repo) == {}


def test_a_push_that_failed_at_its_commit_can_be_repeated_without_sending_the_content_again(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("commit_fails")
    with pytest.raises(ClientError, match="500"):
        loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.commits(repo) == ["initial commit"]
    loopback.owner.call(put, repo, {"b.bin": BINARY})
    assert loopback.files(repo) == {"b.bin": BINARY}
    assert len(loopback.requests("PUT ")) == 1


def test_a_push_whose_answer_was_lost_is_there_and_a_second_one_adds_nothing(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.fail("lost_answer")
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        loopback.owner.call(put, repo, {"a.txt": b"1"})
    assert loopback.files(repo) == {"a.txt": b"1"}
    loopback.owner.call(put, repo, {"a.txt": b"1"})
    assert loopback.commits(repo) == ["Put", "initial commit"]


def test_a_race_is_noticed_when_the_parent_is_named(loopback: Loopback) -> None:
    repo = loopback.repository()
    parent = loopback.owner.call(put, repo, {"a.txt": b"1"})
    loopback.fail("race")
    with pytest.raises(ClientError, match="412"):
        loopback.owner.call(put, repo, {"a.txt": b"2"}, parent=parent)
    assert loopback.files(repo)["a.txt"] == b"1"
    assert loopback.commits(repo)[0] == "Somebody else's commit"
    loopback.owner.call(put, repo, {"a.txt": b"2"}, parent=loopback.refs(repo)["refs/heads/main"])
    assert loopback.files(repo)["a.txt"] == b"2"


def test_a_gate_hides_what_is_not_in_the_cache_yet_and_nothing_else(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"a.txt": b"1", "b.txt": b"2"})
    assert loopback.owner.call(get, repo, "a.txt") == b"1"
    loopback.fail("gated", times=2)
    assert loopback.owner.call(get, repo, "a.txt") == b"1"  # the client prefers its cache to an error
    with pytest.raises(ClientError, match="GatedRepoError"):
        loopback.owner.call(get, repo, "b.txt")


def test_a_broken_download_resumes_where_it_ended(loopback: Loopback) -> None:
    repo = loopback.repository()
    content = BINARY * 2400  # more than the 10 MB that the client writes down at a time
    loopback.owner.call(put, repo, {"b.bin": content})
    loopback.fail("truncated", truncate=11_000_000)
    assert loopback.owner.call(get, repo, "b.bin") == content
    assert len(loopback.requests("GET .*/resolve/")) == 2
    assert [seen.status for seen in loopback.server.world.seen if "GET" in seen.line and "resolve" in seen.line] == [200, 206]


def test_a_download_that_never_succeeds_leaves_nothing_in_the_cache(loopback: Loopback) -> None:
    repo = loopback.repository()
    oid = loopback.owner.call(put, repo, {"a.txt": b"1" * 500})
    loopback.fail("unavailable", where="GET .*/resolve/.*a.txt", times=100)
    finished = loopback.client(HF_HUB_DOWNLOAD_TIMEOUT="1").attempt(snapshot, repo, oid)
    assert finished.error
    with pytest.raises(ClientError, match="LocalEntryNotFoundError"):
        loopback.owner.call(get, repo, "a.txt", revision=oid, local_only=True)


def test_faults_are_declared_over_http_too(loopback: Loopback) -> None:
    def ask(method: str, body: object = None) -> list[dict[str, object]]:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{loopback.endpoint}/_faults", data, method=method)
        with urllib.request.urlopen(request) as answer:
            coming: list[dict[str, object]] = json.load(answer)
            return coming

    [declared] = ask("POST", {"fault": "unavailable", "where": "create", "times": 3})
    assert (declared["status"], declared["where"], declared["times"]) == (503, "create", 3)
    with pytest.raises(ClientError, match="503"):
        loopback.owner.call(create, loopback.repository())
    assert ask("GET")[0]["times"] == 2
    assert ask("DELETE") == []
    loopback.owner.call(create, loopback.repository())


def test_a_fault_lets_some_pass_and_ends() -> None:
    faults = Faults()
    faults.add("unavailable", where="GET /a", after=1, times=2)
    faults.add("payment_required")
    met = [faults.meet(line, b"") for line in ("GET /b", "GET /a", "GET /a", "GET /a", "GET /a")]
    assert [fault.status if isinstance(fault, Fault) else None for fault in met] == [None, None, 503, 503, None]
    assert faults.meet("POST /api/repos/create", b'{"type":"model"}') is None
    assert faults.meet("POST /api/repos/create", b'{"name":"x","type":"space"}') == KNOWN["payment_required"]
