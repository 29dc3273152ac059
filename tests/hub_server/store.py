"""What the Hub keeps, in memory: users, repositories, commits, files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

KINDS = ("model", "dataset", "space")

LFS_SUFFIXES = ("bin", "gz", "mp4", "npy", "npz", "onnx", "parquet", "pkl", "pt", "pth", "safetensors", "tar", "zip")
LFS_SIZE = 10_000_000  # bytes, from which on any file is kept in LFS


def now() -> str:
    """As the Hub writes it, such as 2026-01-02T03:04:05.678Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HubError(Exception):
    """An answer that is an error. Clients decide by the status and by `X-Error-Code`, people by the message."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.headers: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file's content, and where it is kept: in git itself, or in LFS with a pointer in git."""

    content: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n".encode()

    @cached_property
    def oid(self) -> str:
        """The name under which git knows it."""
        kept = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(kept) + kept).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The whole tree after a change, and what is known about the change."""

    files: Mapping[str, Blob]
    title: str
    message: str = ""
    author: str
    parent: Commit | None = None
    date: str = field(default_factory=now)

    @cached_property
    def oid(self) -> str:
        tree = "".join(f"{path}\0{blob.oid}\n" for path, blob in sorted(self.files.items()))
        parent = self.parent.oid if self.parent else ""
        return hashlib.sha1("\0".join((parent, self.title, self.message, self.author, self.date, tree)).encode()).hexdigest()

    def history(self) -> Iterator[Commit]:
        """Itself and those before it, the newest first."""
        commit: Commit | None = self
        while commit:
            yield commit
            commit = commit.parent


@dataclass(kw_only=True)
class Repository:
    """A repository of one kind. `refs` has full names: refs/heads/main, refs/tags/v1, refs/pr/1."""

    kind: str
    id: str
    private: bool = False
    gated: str = ""  # "", "auto" or "manual"
    granted: set[str] = field(default_factory=set)
    created: str = field(default_factory=now)
    refs: dict[str, Commit] = field(default_factory=dict)
    known: dict[str, Commit] = field(default_factory=dict)  # every commit ever, by oid
    objects: dict[str, bytes] = field(default_factory=dict)  # what was uploaded to LFS, by sha256
    pull_requests: int = 0
    space: dict[str, Any] = field(default_factory=dict)  # sdk, secrets, variables, runtime

    def __post_init__(self) -> None:
        patterns = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)
        self.put("refs/heads/main", {".gitattributes": Blob(content=patterns.encode())}, "initial commit", self.owner)

    @property
    def owner(self) -> str:
        return self.id.partition("/")[0]

    @property
    def head(self) -> Commit:
        return self.refs["refs/heads/main"]

    def ref(self, revision: str) -> str | None:
        """The full name of a branch, tag or pull request."""
        names = (revision, f"refs/heads/{revision}", f"refs/tags/{revision}")
        return next((name for name in names if name in self.refs), None)

    def find(self, revision: str) -> Commit:
        """The commit that a name, or an oid or seven or more of its digits, stands for."""
        if name := self.ref(revision):
            return self.refs[name]
        found = [commit for oid, commit in self.known.items() if len(revision) >= 7 and oid.startswith(revision)]
        if not found:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found[0]

    def put(self, ref: str, changes: Mapping[str, Blob | None], title: str, author: str, message: str = "") -> Commit:
        """Commits changes onto a branch or a pull request."""
        parent = self.refs.get(ref)
        files = {**(parent.files if parent else {}), **changes}
        kept = {path: blob for path, blob in files.items() if blob is not None}
        commit = Commit(files=kept, title=title, message=message, author=author, parent=parent)
        self.refs[ref] = self.known[commit.oid] = commit
        return commit


@dataclass(frozen=True, kw_only=True)
class Token:
    user: str
    role: str = "write"


OWNER, READER, STRANGER = "hf_test_owner", "hf_test_reader", "hf_test_stranger"


@dataclass(kw_only=True)
class Hub:
    """All there is: who may come in, and the repositories by (kind, id)."""

    tokens: dict[str, Token] = field(
        default_factory=lambda: {OWNER: Token(user="ada"), READER: Token(user="ada", role="read"), STRANGER: Token(user="bob")}
    )
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    page_size: int = 1000  # entries in an answer that comes in pages
    jobs: dict[str, Any] = field(default_factory=dict)  # id → `jobs.Job`
    runner: Any = None  # `jobs.Runner`, or None: a job then waits for ever
    hardware: list[dict[str, Any]] = field(default_factory=list)  # of jobs, or empty for those of `jobs.HARDWARE`

    def add(self, repository: Repository) -> Repository:
        self.repositories[repository.kind, repository.id] = repository
        return repository
