"""The only upload path to the Hub: one commit per push. Pushing the same files again makes no commit.

The client sends only the files that differ from the repository. A push that fails at any point can be repeated.
"""

from __future__ import annotations

import hashlib
import io
import logging
import mmap
import re
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from huggingface_hub.utils.sha import git_hash

from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.downloads.inspection import is_revision
from msgrpo_hub.errors import UserError

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".h5", ".npy", ".npz")
"""Files that may run code when they are loaded."""

_TEXT = (".md", ".json", ".jsonl", ".toml", ".yaml", ".yml", ".svg", ".jinja", ".txt", ".csv", ".py", ".html")
_ROOTS = rb"home|Users|root|tmp|var|opt|mnt|media|srv|private|scratch|workspace|content|kaggle"
_ELSEWHERE = rb"\bfile:///|\b[A-Za-z]:\\{1,2}Users\b|~/[\w.]"

log = logging.getLogger(__name__)

Files = Mapping[str, Path | bytes]
"""Path in the repository → local file, or its content."""

Stage = Callable[[str, Mapping[str, RepoFile]], Files]
"""Makes the files of a push. Arguments: the parent commit, and the files there; a missing repository has the commit "" and no
files."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a push goes."""

    repo_id: str
    kind: Literal["model", "dataset", "space"] = "model"
    private: bool | None = None
    """Visibility of a new repository; None uses the Hub's setting. An existing repository must agree."""
    revision: str | None = None
    """A branch, created if missing; None is main."""
    create_pr: bool = False
    """Open a pull request instead of committing to main."""
    token: str | None = None
    """None uses the token of `hf auth login` or HF_TOKEN."""

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        if self.create_pr and self.revision not in (None, "main"):
            raise UserError(f"revision {self.revision!r} with a pull request: expected only one of them")
        if self.revision is not None and not is_revision(self.revision):
            raise UserError(f"revision {self.revision!r}: expected the name of a branch, for example 'main'")

    @property
    def api(self) -> HfApi:
        return HfApi(token=self.token)


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The outcome of a push."""

    repo_id: str
    url: str
    commit: str
    private: bool
    changed: tuple[str, ...]
    """Paths that the commit changed; empty if no commit was made, because the repository or an open request has the files."""
    pull_request: str = ""
    """URL of the pull request, if `create_pr` was asked for and something differs from main."""


def check_repo_id(repo_id: str) -> str:
    """Returns the name of a repository. Raises `UserError` unless it is `USER/NAME`.

    >>> check_repo_id("ada/lake")
    'ada/lake'
    """
    try:
        validate_repo_id(repo_id)
        if "/" not in repo_id:
            raise HFValidationError("it has no '/'")
    except HFValidationError as error:
        raise UserError(
            f"{repo_id!r} is not a repository name: expected USER/NAME, as in 'ada/lake' (letters, digits, '-', '_', '.')"
        ) from error
    return repo_id


def check_token(target: Target) -> None:
    """Raises `UserError` if no token is available."""
    if not (target.token or get_token()):
        raise UserError("no token for the Hub was found: run `hf auth login`, or set HF_TOKEN")


def upload(
    source: Path | Stage,
    target: Target,
    *,
    message: str,
    tags: Collection[str] = (),
    marker: str = "",
    replaces: Collection[str] = (),
    create: Mapping[str, Any] | None = None,
) -> Pushed:
    """Makes a repository hold some files, with at most one commit.

    All files are checked first, so that a refused push creates neither a repository nor a branch.

    Args:
        source: a folder, or a function that makes the files. The function is called again if another push comes first.
        target: the repository, created if missing. A pull request is opened unless an open one has the same files.
        message: title of the commit.
        tags: names for the commit; existing tags are moved. A pull request gets no tags.
        marker: a file that identifies this kind of repository. A repository that has files but not the marker is refused.
        replaces: files, or folders with a final `/`, that the push owns. The push removes the owned files that it does not have.
        create: further arguments of `HfApi.create_repo`.

    Raises:
        UserError: a file must not leave this machine, or the Hub refuses.
    """
    check_token(target)
    api, branch, pull_request = target.api, target.revision or "main", ""
    with hub_errors(target.repo_id), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file", UserWarning)
        for attempt in ("first", "last"):
            _, head = _open(target, branch)
            there = listing(target, head) if head else {}
            if marker and marker not in there and set(there) - {"README.md", ".gitattributes"}:
                raise UserError(f"{target.repo_id!r} holds something else (files, but no {marker}): name another repository")
            files = files_in(source) if isinstance(source, Path) else source(head, there)
            check_files(files, target.token)
            private, opened = _open(target, branch, create or {})
            head = head or opened
            if target.create_pr and (found := _find_request(target, files, there, replaces)):
                commit, pull_request = head, _ = found
                break
            try:
                made = api.create_commit(
                    target.repo_id,
                    [
                        *(
                            CommitOperationAdd(path, str(file) if isinstance(file, Path) else file)
                            for path, file in files.items()
                        ),
                        *(CommitOperationDelete(path) for path in _owned(there, replaces) if path not in files),
                    ],
                    commit_message=message,
                    repo_type=target.kind,
                    revision=branch,
                    parent_commit=head,
                    create_pr=target.create_pr,
                )
                commit, pull_request = made.oid, made.pr_url or ""
                break
            except HfHubHTTPError as error:
                if error.response.status_code != 412 or attempt == "last":
                    raise
                log.warning("%s has a new commit by another push: pushing onto the new head", target.repo_id)
        now = there if commit == head else listing(target, commit)
        tagged = {tag.name: tag.target_commit for tag in api.list_repo_refs(target.repo_id, repo_type=target.kind).tags}
        for tag in () if target.create_pr else [tag for tag in tags if tagged.get(tag) != commit]:
            if tag in tagged:
                api.delete_tag(target.repo_id, tag=tag, repo_type=target.kind)
            api.create_tag(target.repo_id, tag=tag, revision=commit, repo_type=target.kind)
    changed = {
        path for path in {*there, *now} if path not in there or path not in now or there[path].blob_id != now[path].blob_id
    }
    return Pushed(
        repo_id=target.repo_id,
        url=f"{api.endpoint}/{'' if target.kind == 'model' else f'{target.kind}s/'}{target.repo_id}",
        commit=commit,
        private=private,
        changed=tuple(sorted(changed - {".gitattributes"})),
        pull_request=pull_request,
    )


def _open(target: Target, branch: str, create: Mapping[str, Any] | None = None) -> tuple[bool, str]:
    """Returns whether the repository is private, and the head of the branch.

    Without `create`, a missing repository has the head "", and a missing branch the head of main, from which it would start.
    With `create`, both are created if missing.
    """
    api, repo, kind = target.api, target.repo_id, target.kind
    try:
        info = api.repo_info(repo, repo_type=kind)
    except RepositoryNotFoundError:
        if create is None:
            return bool(target.private), ""
        api.create_repo(repo, repo_type=kind, private=target.private, exist_ok=True, **create)
        info = api.repo_info(repo, repo_type=kind)
    private = bool(info.private)
    if target.private not in (None, private):
        now, asked = ("private", "public") if private else ("public", "private")
        raise UserError(f"{repo!r} is {now}, not {asked} as requested: change its settings, or name another repository")
    try:
        return private, str(api.repo_info(repo, repo_type=kind, revision=branch).sha)
    except RevisionNotFoundError:
        if create is not None:
            api.create_branch(repo, branch=branch, repo_type=kind, exist_ok=True)
        return private, str(info.sha)


def _find_request(
    target: Target, files: Files, there: Mapping[str, RepoFile], replaces: Collection[str]
) -> tuple[str, str] | None:
    """Commit and URL of an open pull request that has these files; None if there is none, or if main has the files too."""

    def differ(held: Mapping[str, RepoFile]) -> bool:
        changed = (path not in held or not is_same(file, held[path]) for path, file in files.items())
        return any(changed) or any(path not in files for path in _owned(held, replaces))

    if not differ(there):
        return None
    api, repo, kind = target.api, target.repo_id, target.kind
    for request in api.get_repo_discussions(repo, repo_type=kind, discussion_type="pull_request", discussion_status="open"):
        ref = f"refs/pr/{request.num}"
        if not differ(listing(target, ref)):
            return str(api.repo_info(repo, repo_type=kind, revision=ref).sha), request.url
    return None


def _owned(there: Collection[str], replaces: Collection[str]) -> list[str]:
    """The paths among these that a push owns."""
    return [path for path in there if any(path == own or (own[-1] == "/" and path.startswith(own)) for own in replaces)]


def is_same(file: Path | bytes, there: RepoFile) -> bool:
    """Whether a file equals one on the Hub, which lists SHA-256 for large files and git's hash for others."""
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as content:
        if there.lfs:
            return hashlib.file_digest(content, "sha256").hexdigest() == there.lfs.sha256
        return git_hash(content.read()) == there.blob_id


def listing(target: Target, revision: str) -> dict[str, RepoFile]:
    """The files of a repository at a commit, by path."""
    tree = target.api.list_repo_tree(target.repo_id, repo_type=target.kind, revision=revision, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


# ---- what may leave this machine


def files_in(folder: Path) -> dict[str, Path]:
    """The files and links in a folder, by their names on the Hub."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}


def check_folder(folder: Path) -> dict[str, Path]:
    """Checks every file of a folder and returns them by their names on the Hub. Raises `UserError` as `check_files` does."""
    files = files_in(folder)
    check_files(files)
    return files


def check_files(files: Files, token: str | None = None) -> None:
    """Checks every file of a push.

    Args:
        files: the files, by their names on the Hub.
        token: must not be in any file, nor may the token of this machine or anything that looks like a token.

    Raises:
        UserError: a hidden or oddly named file, a link, a pickle, a token, or a path of this machine in a text file.
    """
    own = [re.escape(text.encode()) for text in {token, get_token()} if text]
    tokens = b"|".join([rb"hf_[A-Za-z0-9]{20,}", *own])
    for name, file in files.items():
        kind = Path(name).suffix
        if not re.fullmatch(r"(\w[\w .+=-]*/)*\w[\w .+=-]*", name, re.ASCII):
            raise UserError(f"a file named {name!r} is not pushed: expected letters, digits, '.', '_', '-', '+' and '='")
        if isinstance(file, Path) and file.is_symlink():
            raise UserError(f"{name!r} is a link and is not pushed: expected a regular file")
        if kind in PICKLED:
            raise UserError(f"{name!r} is not pushed, because loading it can run code: expected .safetensors")
        with _content(file) as content:
            local = local_path(content) if kind in _TEXT else ""
            secret = "a token" if re.search(tokens, content) else f"a path of this machine ({local}…)" if local else ""
        if secret:
            raise UserError(f"{name!r} is not pushed because it contains {secret}: remove it from the run's files and push again")


@contextmanager
def _content(file: Path | bytes) -> Iterator[bytes | mmap.mmap]:
    """The content of a file, mapped into memory unless it is empty."""
    if isinstance(file, bytes) or not file.stat().st_size:
        yield file if isinstance(file, bytes) else b""
        return
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def local_path(content: bytes | mmap.mmap) -> str:
    """The beginning of the first path of this machine in a text; empty if it has none.

    >>> local_path(b"see /" + b"home/ada/runs") == "/" + "home/a", local_path(b"see https://example.org/home/ada")
    (True, '')
    """
    own = [re.escape(str(path).strip("/").encode()) for path in (Path.home(), Path.cwd(), Path(tempfile.gettempdir()).resolve())]
    folders = b"|".join([_ROOTS, *filter(None, own)])
    match = re.search(rb"(?:(?<![\w.~/<])|(?<=\\[nrt]))/(?:" + folders + rb")/[\w.]|" + _ELSEWHERE, content)
    return match[0].decode(errors="replace") if match else ""
