"""The Hub's data, in memory: users, repositories, commits and files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

LFS_SUFFIXES = ("bin", "gz", "npy", "npz", "onnx", "parquet", "pkl", "pt", "pth", "safetensors", "tar", "zip")
LFS_SIZE = 10_000_000


def now() -> str:
    """The time in the Hub's format, such as 2026-01-02T03:04:05.678Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HubError(Exception):
    """An error response. The client decides by the status and by the header `X-Error-Code`."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message.replace("\n", " "), **headers} | ({"X-Error-Code": code} if code else {})


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file, stored in git, or in LFS with a pointer in git."""

    content: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def oid(self) -> str:
        """Git's hash of the file, or of its LFS pointer."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        stored = pointer.encode() if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True, kw_only=True)
class Commit:
    """All files after a change, and who made it."""

    files: Mapping[str, Blob]
    title: str
    author: str
    parent: Commit | None = None
    date: str = field(default_factory=now)

    @cached_property
    def oid(self) -> str:
        tree = "".join(f"{path}\0{blob.oid}\n" for path, blob in sorted(self.files.items()))
        parent = self.parent.oid if self.parent else ""
        return hashlib.sha1("\0".join((parent, self.title, self.author, self.date, tree)).encode()).hexdigest()

    def history(self) -> Iterator[Commit]:
        """This commit and its ancestors, newest first."""
        commit: Commit | None = self
        while commit:
            yield commit
            commit = commit.parent


@dataclass(kw_only=True)
class Repository:
    kind: str
    id: str
    private: bool = False
    gated: str = ""
    """"manual" if only the owner may download."""
    refs: dict[str, Commit] = field(default_factory=dict)
    """By full name: refs/heads/main, refs/pr/1."""
    known: dict[str, Commit] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Content uploaded to LFS, by SHA-256."""
    pull_requests: int = 0
    space: dict[str, Any] = field(default_factory=dict)
    """SDK and runtime of a Space."""

    def __post_init__(self) -> None:
        patterns = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)
        self.put("refs/heads/main", {".gitattributes": Blob(content=patterns.encode())}, "initial commit", self.owner)

    @property
    def owner(self) -> str:
        return self.id.partition("/")[0]

    @property
    def head(self) -> Commit:
        return self.refs["refs/heads/main"]

    def find(self, revision: str) -> Commit:
        """The commit of a branch, pull request or oid. Raises `HubError` for any other name."""
        names = (revision, f"refs/heads/{revision}")
        found = [self.refs[name] for name in names if name in self.refs]
        if not found and revision not in self.known:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found[0] if found else self.known[revision]

    def put(self, ref: str, changes: Mapping[str, Blob | None], title: str, author: str) -> Commit:
        """Commits changes onto a ref; None deletes a file."""
        parent = self.refs.get(ref)
        files = {**(parent.files if parent else {}), **changes}
        kept = {path: blob for path, blob in files.items() if blob is not None}
        commit = Commit(files=kept, title=title, author=author, parent=parent)
        self.refs[ref] = self.known[commit.oid] = commit
        return commit


OWNER, READER, STRANGER = "hf_test_owner", "hf_test_reader", "hf_test_stranger"
USERS = {OWNER: "ada", READER: "ada", STRANGER: "bob"}
"""Token → user. READER may only read."""


@dataclass(kw_only=True)
class Hub:
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    """By kind and id."""
    collections: dict[str, Any] = field(default_factory=dict)
    """By slug."""
    jobs: dict[str, Any] = field(default_factory=dict)
    """By id: `jobs.Job`."""
    runner: Any = None
    """`jobs.Runner`; without one a job waits forever."""
