"""The unmodified client on the Hub on loopback, its faults, and requests elsewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.hub_server.app import COMMIT
from tests.hub_server.cards import check_card
from tests.hub_server.client import ClientError, clean_environment, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server

__all__ = ["loopback", "loopback_server"]

pytestmark = pytest.mark.lowest

ROOT = Path(__file__).parents[2]
ASK = "from huggingface_hub import HfApi; print(HfApi().create_repo('lake').repo_id)"
BINARY = bytes(range(256)) * 20


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ask_elsewhere() -> None:
    httpx.get("https://192.0.2.1/", timeout=5)  # an address reserved for documentation


def test_a_push_with_a_token_or_a_wrong_card_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    with pytest.raises(ClientError, match=r"(?s)BadRequestError: .*contains a valid Hugging Face token, in .env"):
        loopback.owner.call(put, repo, {".env": b"HF_TOKEN=hf_test_owner\n"})
    assert loopback.files(repo) == {}
    assert [error.split()[0] for error in check_card("space", "---\nlicense: nope\nsdk: static\n---\n")[0]] == ['"license"']


def test_the_client_retries_what_it_can_and_sends_equal_content_once(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {"a.txt": b"a", "data/b.bin": BINARY}
    loopback.fail("POST .*/preupload/")
    loopback.fail("PUT /_lfs/")
    loopback.fail(COMMIT, status=0, truncate=0)  # the answer is lost, the commit is not
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        loopback.owner.call(put, repo, files)
    loopback.owner.call(put, repo, files)
    assert [len(loopback.requests(part)) for part in ("/preupload/", "PUT ", "/commit/")] == [3, 2, 1]
    assert (loopback.files(repo), loopback.commits(repo)) == (files, ["Put", "initial commit"])
    assert loopback.stored(repo).head.files["data/b.bin"].lfs


def test_a_killed_client_and_a_request_to_another_machine_are_noticed(loopback: Loopback) -> None:
    assert loopback.owner.attempt(die).code == -signal.SIGKILL
    assert loopback.owner.attempt(ask_elsewhere).error
    assert [*loopback.world.strays] == ["CONNECT 192.0.2.1:443"]
    loopback.world.strays.clear()


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
