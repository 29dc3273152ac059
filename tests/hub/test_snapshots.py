"""A download is whole or an error, whatever an earlier one has left in the cache."""

from __future__ import annotations

from pathlib import Path

from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import create, put

FILES = {"a.txt": b"one", "b.txt": b"three"}


def download_twice(repo: str) -> str:
    """In the client's process: all files, after one of them; the client's own listing fails in between."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download

    from msgrpo_hub.downloads.snapshots import snapshot
    from msgrpo_hub.errors import UserError

    commit = str(HfApi().model_info(repo).sha)
    hf_hub_download(repo, "a.txt", revision=commit)
    sizes = {name: len(content) for name, content in FILES.items()}
    try:
        snapshot(repo, commit, sizes)
    except UserError as error:
        left = Path(snapshot_download(repo, revision=commit, local_files_only=True))
        assert not (left / "b.txt").exists()
        whole = snapshot(repo, commit, sizes)
        assert {name: (whole / name).read_bytes() for name in FILES} == FILES
        return str(error)
    return ""


def test_a_part_in_the_cache_is_not_taken_for_the_whole(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    loopback.owner.call(put, repo, FILES)
    loopback.fail("unavailable", where=f"GET /api/models/{repo}/", status=403)
    said = loopback.owner.call(download_twice, repo)
    assert "'b.txt' of" in said
    assert "did not arrive whole" in said
