"""Files of a repository at one commit, all of them or an error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from huggingface_hub import snapshot_download

from msgrpo_hub.downloads.hub_errors import AGAIN, hub_errors, retry_rate_limit
from msgrpo_hub.errors import UserError


def snapshot(
    repo_id: str, commit: str, sizes: Mapping[str, int], *, kind: str = "model", token: str | None = None, into: str | None = None
) -> Path:
    """Downloads files and returns the folder that has them: the cache's, or `into`.

    Args:
        repo_id: the repository.
        commit: its commit.
        sizes: name of each file → its bytes.
        kind: `model`, `dataset` or `space`.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        into: a folder for the files; None is the cache.

    Raises:
        UserError: the Hub refuses, or a file did not arrive whole. (If its own listing fails, the client returns a folder that an
            earlier download has left, whatever that holds.)
    """
    download = partial(
        snapshot_download, repo_id, repo_type=kind, revision=commit, allow_patterns=[*sizes], local_dir=into, token=token
    )
    with hub_errors(repo_id):
        folder = Path(retry_rate_limit(download))
    for name, size in sizes.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise UserError(f"{name!r} of {repo_id!r} did not arrive whole: check the network, then {AGAIN}")
    return folder
