"""What many tests do first, each through the unmodified client."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download


def create(repo: str, kind: str = "model", *, private: bool = True, exist_ok: bool = False) -> str:
    sdk = "static" if kind == "space" else None
    return HfApi().create_repo(repo, repo_type=kind, private=private, exist_ok=exist_ok, space_sdk=sdk).repo_id


def put(
    repo: str,
    files: dict[str, bytes],
    kind: str = "model",
    *,
    revision: str = "main",
    parent: str | None = None,
    pr: bool = False,
) -> str:
    """Commits files, all at once; makes the repository where it is not there yet."""
    if not HfApi().repo_exists(repo, repo_type=kind):
        create(repo, kind)
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    return (
        HfApi()
        .create_commit(
            repo, additions, commit_message="Put", repo_type=kind, revision=revision, parent_commit=parent, create_pr=pr
        )
        .oid
    )


def get(repo: str, path: str, kind: str = "model", revision: str | None = None, *, local_only: bool = False) -> bytes:
    return Path(hf_hub_download(repo, path, repo_type=kind, revision=revision, local_files_only=local_only)).read_bytes()
