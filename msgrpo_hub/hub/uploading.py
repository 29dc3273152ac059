"""The only upload path to the Hub: a folder becomes one commit, and pushing it again changes nothing.

Files that the repository already holds are compared, not sent. A push is idempotent and can be repeated after a failure at
any point, so a race or a rate limit is handled by repeating the whole push.
"""

from __future__ import annotations

import hashlib
import logging
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is that of httpx2 or of httpx
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.hub_errors import hub_errors, retry_rate_limit
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.repo_files import check_folder

RACES = 1
"""How often a push is repeated on a new head."""

log = logging.getLogger(__name__)

Prepare = Callable[[str, Mapping[str, RepoFile]], None]
"""Writes files that depend on the repository into the folder. Arguments: the parent commit, and the files there."""


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
        if self.revision and not re.fullmatch(r"(?!.*(\.\.|//))[\w][\w./-]{0,99}(?<![./])", self.revision, re.ASCII):
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
    """Paths that were sent or removed; empty if the repository was up to date and no commit was made."""
    pull_request: str = ""
    """URL of the pull request, if requested."""


def check_repo_id(repo_id: str) -> str:
    """Returns the name of a repository. Raises `UserError` unless it is `USER/NAME`.

    >>> check_repo_id("ada/lake")
    'ada/lake'
    """
    part = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    hostile = "--" in repo_id or ".." in repo_id or repo_id.endswith(".git") or len(repo_id) > 96
    if hostile or not re.fullmatch(f"{part}/{part}", repo_id):
        raise UserError(
            f"{repo_id!r} is not a repository name: expected USER/NAME, as in 'ada/lake' (letters, digits, '-', '_', '.')"
        )
    return repo_id


def check_token(target: Target) -> None:
    """Raises `UserError` if no token is available."""
    if not (target.token or get_token()):
        raise UserError("no token for the Hub was found: run `hf auth login`, or set HF_TOKEN")


def upload(
    folder: Path,
    target: Target,
    *,
    message: str,
    tags: Collection[str] = (),
    marker: str = "",
    replaces: Collection[str] = (),
    prepare: Prepare | None = None,
) -> Pushed:
    """Makes a repository hold the files of a folder, with at most one commit.

    Args:
        folder: its files are pushed under the same names.
        target: the repository, created if missing.
        message: title of the commit.
        tags: names for the commit with these files. A tag on a commit with other files is moved. A pull request gets no tags.
        marker: a file that identifies this kind of repository. A repository that has files but not the marker is refused.
        replaces: files, or folders with a final `/`, that the push owns: those in the repository but not in the folder are
            removed in the same commit.
        prepare: called before the comparison, and again on a new head if another push came first.

    Raises:
        UserError: a file must not leave this machine, or the Hub refuses.
    """
    files = check_folder(folder, target.token or get_token())
    check_token(target)
    push = partial(_push, folder, files, target, message, tags, marker, replaces, prepare)
    races = RACES

    def onto_the_head() -> Pushed:
        nonlocal races
        try:
            return push()
        except HfHubHTTPError as error:
            if error.response.status_code != 412 or not races:
                raise
        races -= 1
        log.warning("%s has a new commit by another push: pushing onto the new head", target.repo_id)
        return onto_the_head()

    try:
        with hub_errors(target.repo_id):
            return retry_rate_limit(onto_the_head)
    except UserError as error:
        raise UserError(f"{error}{_left_empty(target)}") from error


def _left_empty(target: Target) -> str:
    """Says that a failed push has left an empty repository; nothing if it has not, or if the Hub does not answer."""
    try:
        private = target.api.repo_info(target.repo_id, repo_type=target.kind).private
        files = target.api.list_repo_files(target.repo_id, repo_type=target.kind)
    except (HfHubHTTPError, HTTPError, OfflineModeIsEnabled):
        return ""
    if {*files} - {".gitattributes"}:
        return ""
    return f"; {target.repo_id!r} is there, {'private' if private else 'public'} and empty, until a push succeeds"


def _push(
    folder: Path,
    files: Mapping[str, Path],
    target: Target,
    message: str,
    tags: Collection[str],
    marker: str,
    replaces: Collection[str],
    prepare: Prepare | None,
) -> Pushed:
    private = _open(target)
    branch = target.revision or "main"
    head = _head(target, branch)
    there = listing(target, head)
    if marker and marker not in there and set(there) - {"README.md", ".gitattributes"}:
        raise UserError(f"{target.repo_id!r} holds something else (it has files, but no {marker}): name another repository")
    if prepare:
        prepare(head, there)
        files = check_folder(folder, target.token or get_token())
    changed = differences(files, there, replaces)
    commit, url, pull_request = head, f"{target.api.endpoint}/{_prefix(target)}{target.repo_id}", ""
    if changed and target.create_pr and (existing := _open_request(files, target, replaces)):
        commit, pull_request, changed = *existing, []
    elif changed:
        commit, pull_request = _commit(files, target, message, branch, head, changed)
    if not target.create_pr:
        _tag(files, target, tags, commit, replaces)
    return Pushed(
        repo_id=target.repo_id, url=url, commit=commit, private=private, changed=tuple(changed), pull_request=pull_request
    )


def _commit(
    files: Mapping[str, Path], target: Target, message: str, branch: str, head: str, changed: Collection[str]
) -> tuple[str, str]:
    """Makes the commit. Returns its id, and the URL of the pull request if one was requested."""
    additions = [CommitOperationAdd(path, str(files[path])) for path in changed if path in files]
    removals = [CommitOperationDelete(path) for path in changed if path not in files]
    with warnings.catch_warnings():  # it says that Parquet belongs into datasets; an adapter may have a few results
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file", UserWarning)
        commit = target.api.create_commit(
            target.repo_id,
            [*additions, *removals],
            commit_message=message,
            repo_type=target.kind,
            revision=branch,
            parent_commit=head,
            create_pr=target.create_pr,
        )
    return commit.oid, commit.pr_url or ""


def _open(target: Target) -> bool:
    """Creates the repository if it is missing. Returns whether it is private."""
    api = target.api
    try:
        info = api.repo_info(target.repo_id, repo_type=target.kind)
    except RepositoryNotFoundError:
        api.create_repo(target.repo_id, repo_type=target.kind, private=target.private, exist_ok=True)
        info = api.repo_info(target.repo_id, repo_type=target.kind)
    private = bool(info.private)
    if target.private not in (None, private):
        now, asked = ("private", "public") if private else ("public", "private")
        raise UserError(f"{target.repo_id!r} is {now}, not {asked} as requested: change its settings, or name another repository")
    return private


def _head(target: Target, branch: str) -> str:
    """The head commit of a branch; creates the branch if it is missing."""
    try:
        return str(target.api.repo_info(target.repo_id, repo_type=target.kind, revision=branch).sha)
    except RevisionNotFoundError:
        if branch.startswith("refs/"):
            raise
        target.api.create_branch(target.repo_id, branch=branch, repo_type=target.kind, exist_ok=True)
        return str(target.api.repo_info(target.repo_id, repo_type=target.kind, revision=branch).sha)


def _prefix(target: Target) -> str:
    return "" if target.kind == "model" else f"{target.kind}s/"


# ---- comparing


def listing(target: Target, revision: str) -> dict[str, RepoFile]:
    """The files of a repository at a commit."""
    tree = target.api.list_repo_tree(target.repo_id, repo_type=target.kind, revision=revision, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def differences(files: Mapping[str, Path], there: Mapping[str, RepoFile], replaces: Collection[str] = ()) -> list[str]:
    """Paths to send (missing or different in the repository) and to remove (owned by the push but not in the folder)."""
    new = [path for path, file in files.items() if path not in there or not _same(file, there[path])]
    owned = [path for path in there if path in replaces or any(name.endswith("/") and path.startswith(name) for name in replaces)]
    return sorted(new + [path for path in owned if path not in files])


def _same(file: Path, there: RepoFile) -> bool:
    """Whether a file equals one on the Hub, which stores SHA-256 for large files and git's hash for others."""
    if file.stat().st_size != there.size:
        return False
    if there.lfs:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == there.lfs.sha256
    content_bytes = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content_bytes) + content_bytes).hexdigest() == there.blob_id


def _open_request(files: Mapping[str, Path], target: Target, replaces: Collection[str]) -> tuple[str, str] | None:
    """Commit and URL of an open pull request that already has exactly these files."""
    refs = {
        ref.ref: ref.target_commit
        for ref in target.api.list_repo_refs(target.repo_id, repo_type=target.kind, include_pull_requests=True).pull_requests
        or []
    }
    for request in target.api.get_repo_discussions(target.repo_id, repo_type=target.kind, discussion_type="pull_request"):
        commit = refs.get(f"refs/pr/{request.num}")
        if commit and request.status in ("open", "draft") and not differences(files, listing(target, commit), replaces):
            return commit, request.url
    return None


def _tag(files: Mapping[str, Path], target: Target, tags: Collection[str], commit: str, replaces: Collection[str]) -> None:
    """Sets each tag to a commit that has the files; a tag that is already right is not moved."""
    api, kind = target.api, target.kind
    there = {tag.name: tag.target_commit for tag in api.list_repo_refs(target.repo_id, repo_type=kind).tags} if tags else {}
    for tag in tags:
        at = there.get(tag)
        if at == commit or (at and not differences(files, listing(target, at), replaces)):
            continue
        if at:
            api.delete_tag(target.repo_id, tag=tag, repo_type=kind)
        api.create_tag(target.repo_id, tag=tag, revision=commit, repo_type=kind, exist_ok=True)
