"""What the live lane asks the client about a Hub, instead of looking into it."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download


def user() -> str:
    name: str = HfApi().whoami()["name"]
    return name


def files(repo: str, kind: str, revision: str) -> dict[str, bytes]:
    sha = HfApi().repo_info(repo, repo_type=kind, revision=revision).sha
    folder = Path(snapshot_download(repo, repo_type=kind, revision=sha, local_dir=Path.cwd() / "files"))
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return {path: (folder / path).read_bytes() for path in paths if path != ".gitattributes" and not path.startswith(".cache/")}


def commits(repo: str, kind: str, revision: str) -> list[str]:
    return [commit.title for commit in HfApi().list_repo_commits(repo, repo_type=kind, revision=revision)]


def refs(repo: str, kind: str) -> dict[str, str]:
    found = HfApi().list_repo_refs(repo, repo_type=kind, include_pull_requests=True)
    return {ref.ref: ref.target_commit for ref in [*found.branches, *found.tags, *(found.pull_requests or [])]}


def delete(repo: str, kind: str) -> None:
    HfApi().delete_repo(repo, repo_type=kind, missing_ok=True)
