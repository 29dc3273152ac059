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
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

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
"""Makes the files of a push from the parent commit and its files; a missing repository has the commit "" and no files."""


class Where(TypedDict, total=False):
    """Options of every push, as in `Target`."""

    private: bool | None
    revision: str | None
    create_pr: bool
    token: str | None


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

    def read(self, revision: str | None = None, *, may_be_missing: bool = False) -> tuple[str, dict[str, RepoFile]]:
        """The commit of a revision and its files by path. A repository that may be missing then has "" and no files."""
        try:
            commit = str(self.api.repo_info(self.repo_id, repo_type=self.kind, revision=revision).sha)
        except RepositoryNotFoundError:
            if may_be_missing:
                return "", {}
            raise
        tree = self.api.list_repo_tree(self.repo_id, repo_type=self.kind, revision=commit, recursive=True)
        return commit, {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


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
    """URL of the pull request if `create_pr` is set and something differs from main."""


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


def check_token(token: str | None = None) -> str:
    """Returns the token, or else the one of this machine. Raises `UserError` if there is none."""
    if not (found := token or get_token()):
        raise UserError("no token for the Hub was found: run `hf auth login`, or set HF_TOKEN")
    return found


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
    check_token(target.token)
    api, repo, kind, branch, pull_request = target.api, target.repo_id, target.kind, target.revision or "main", ""
    with hub_errors(repo), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file", UserWarning)
        for attempt in ("first", "last"):
            # 1) the present files, and the new ones
            _, head = _open(target, branch)
            there = target.read(head)[1] if head else {}
            if marker and marker not in there and set(there) - {"README.md", ".gitattributes"}:
                raise UserError(f"{repo!r} holds something else (files, but no {marker}): name another repository")
            files = files_in(source) if isinstance(source, Path) else source(head, there)
            check_files(files, target.token)
            # 2) the repository, the branch and the commit
            private, opened = _open(target, branch, create or {})
            head = head or opened
            if target.create_pr and (found := _find_request(target, files, there, replaces)):
                head = commit = found[0]
                pull_request = found[1]
                break
            additions = [CommitOperationAdd(name, str(file) if isinstance(file, Path) else file) for name, file in files.items()]
            deletions = [CommitOperationDelete(path) for path in owned(there, replaces) if path not in files]
            try:
                made = api.create_commit(
                    repo,
                    [*additions, *deletions],
                    commit_message=message,
                    repo_type=kind,
                    revision=branch,
                    parent_commit=head,
                    create_pr=target.create_pr,
                )
                commit, pull_request = made.oid, made.pr_url or ""
                break
            except HfHubHTTPError as error:
                if error.response.status_code != 412 or attempt == "last":
                    raise
                log.warning("%s has a new commit by another push: pushing onto the new head", repo)
        # 3) the tags, which an earlier push may have left undone
        now = there if commit == head else target.read(commit)[1]
        tagged = {tag.name: tag.target_commit for tag in api.list_repo_refs(repo, repo_type=kind).tags}
        for tag in () if target.create_pr else [tag for tag in tags if tagged.get(tag) != commit]:
            if tag in tagged:
                api.delete_tag(repo, tag=tag, repo_type=kind)
            api.create_tag(repo, tag=tag, revision=commit, repo_type=kind)
    hashes = [{path: entry.blob_id for path, entry in files.items()} for files in (there, now)]
    changed = {path for path, _ in hashes[0].items() ^ hashes[1].items()} - {".gitattributes"}
    url = f"{api.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo}"
    return Pushed(
        repo_id=repo, url=url, commit=commit, private=private, changed=tuple(sorted(changed)), pull_request=pull_request
    )


def _open(target: Target, branch: str, create: Mapping[str, Any] | None = None) -> tuple[bool, str]:
    """Returns whether the repository is private, and the head of the branch.

    Without `create`, a missing repository has the head "", and a missing branch has the head of main, its start.
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

    def has_all(held: Mapping[str, RepoFile]) -> bool:
        same = all(path in held and is_same(file, held[path]) for path, file in files.items())
        return same and all(path in files for path in owned(held, replaces))

    kind = target.kind
    if not has_all(there):
        opened = target.api.get_repo_discussions(
            target.repo_id, repo_type=kind, discussion_type="pull_request", discussion_status="open"
        )
        for request in opened:
            commit, held = target.read(f"refs/pr/{request.num}")
            if has_all(held):
                return commit, request.url
    return None


def owned(paths: Iterable[str], names: Collection[str]) -> list[str]:
    """The paths among these names, or in folders among them, which end in `/`."""
    return [path for path in paths if any(path == name or (name[-1] == "/" and path.startswith(name)) for name in names)]


def is_same(file: Path | bytes, there: RepoFile) -> bool:
    """Whether a file equals one on the Hub, which lists SHA-256 for large files and git's hash for others."""
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as content:
        if there.lfs:
            return hashlib.file_digest(content, "sha256").hexdigest() == there.lfs.sha256
        return git_hash(content.read()) == there.blob_id


# ---- what may leave this machine


def files_in(folder: Path) -> dict[str, Path]:
    """The files and links in a folder, by their names on the Hub."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}


def check_files(files: Files, token: str | None = None) -> None:
    """Checks every file of a push.

    Raises:
        UserError: a hidden or oddly named file, a link, a pickle, a path of this machine in a text file, the given token or
            the one of this machine, or anything that looks like a token.
    """
    own = [re.escape(text.encode()) for text in {token, get_token()} if text]
    tokens = b"|".join([rb"hf_[A-Za-z0-9]{20,}", *own])
    for name, file in files.items():
        if not re.fullmatch(r"(\w[\w .+=-]*/)*\w[\w .+=-]*", name, re.ASCII):
            raise UserError(f"a file named {name!r} is not pushed: expected letters, digits, '.', '_', '-', '+' and '='")
        if isinstance(file, Path) and file.is_symlink():
            raise UserError(f"{name!r} is a link and is not pushed: expected a regular file")
        if name.endswith(PICKLED):
            raise UserError(f"{name!r} is not pushed, because loading it can run code: expected .safetensors")
        with ExitStack() as opened:
            content: bytes | mmap.mmap = file if isinstance(file, bytes) else b""
            if isinstance(file, Path) and file.stat().st_size:  # an empty file cannot be mapped into memory
                descriptor = opened.enter_context(file.open("rb")).fileno()
                content = opened.enter_context(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            local = local_path(content) if name.endswith(_TEXT) else ""
            secret = "a token" if re.search(tokens, content) else f"a path of this machine ({local}…)" if local else ""
        if secret:
            raise UserError(f"{name!r} is not pushed because it contains {secret}: remove it from the run's files and push again")


def local_path(content: bytes | mmap.mmap) -> str:
    """The beginning of the first path of this machine in a text; empty if it has none.

    >>> local_path(b"see /" + b"home/ada/runs") == "/" + "home/a", local_path(b"see https://example.org/home/ada")
    (True, '')
    """
    own = [re.escape(str(path).strip("/").encode()) for path in (Path.home(), Path.cwd(), Path(tempfile.gettempdir()).resolve())]
    folders = b"|".join([_ROOTS, *filter(None, own)])
    match = re.search(rb"(?:(?<![\w.~/<])|(?<=\\[nrt]))/(?:" + folders + rb")/[\w.]|" + _ELSEWHERE, content)
    return match[0].decode(errors="replace") if match else ""
