"""Xet on: the client's own library stores chunks in a folder, instead of sending files through LFS."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import HfApi

from tests.hub_server.operations import create, get

if TYPE_CHECKING:
    from tests.hub_server.client import Client
    from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.lowest

CONTENT = random.Random(0).randbytes(300_000)


def upload(repo: str, files: dict[str, bytes]) -> None:
    """From files: content that is only in memory goes through LFS all the same."""
    for path, content in files.items():
        Path("folder", path).parent.mkdir(parents=True, exist_ok=True)
        Path("folder", path).write_bytes(content)
    HfApi().upload_folder(repo_id=repo, folder_path="folder", commit_message="Upload")


@pytest.fixture
def xet(loopback: Loopback, tmp_path: Path) -> Client:
    loopback.hub.xet_folder = str(tmp_path)
    return loopback.client(HF_HUB_DISABLE_XET="0")


def test_content_goes_through_xet_and_comes_back(loopback: Loopback, xet: Client) -> None:
    repo = loopback.repository()
    xet.call(create, repo)
    xet.call(upload, repo, {"b.bin": CONTENT, "a.txt": b"a"})
    stored = loopback.stored(repo).head.files["b.bin"]
    assert (stored.content, len(stored.xet_hash), loopback.requests("PUT ")) == (CONTENT, 64, [])
    assert loopback.stored(repo).objects == {}
    loopback.forget_requests()
    assert xet.call(get, repo, "b.bin") == CONTENT
    assert loopback.requests("GET .*/resolve/") == []


def test_a_client_without_xet_gets_the_same_bytes(loopback: Loopback, xet: Client) -> None:
    repo = loopback.repository()
    xet.call(create, repo)
    xet.call(upload, repo, {"b.bin": CONTENT})
    assert loopback.owner.call(get, repo, "b.bin") == CONTENT


def test_many_files_are_more_than_one_commit_with_xet_and_one_without(loopback: Loopback, xet: Client) -> None:
    files = {f"{n}.txt": b"%d" % n for n in range(300)}
    for client, commits in (
        (xet, ["Upload (part 2)", "Upload", "initial commit"]),
        (loopback.owner, ["Upload", "initial commit"]),
    ):
        repo = loopback.repository()
        client.call(create, repo)
        client.call(upload, repo, files)
        assert loopback.files(repo) == files
        assert loopback.commits(repo) == commits
