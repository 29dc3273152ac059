"""The one way up to the Hub: a folder becomes one commit, and pushing it again changes nothing.

What the repository holds already is compared, not sent. Everything here can be repeated after a failure at any point and
ends in the same state, so a race or a rate limit is met by doing all of it again.
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
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.hub_errors import hub_errors, retry_rate_limit
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.repo_files import check_folder

RACES = 1
"""How often a push starts again on a new head."""

log = logging.getLogger(__name__)

Prepare = Callable[[str, Mapping[str, RepoFile]], None]
"""Writes what depends on the repository into the folder: is given the commit to push onto, and the files there."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a push goes."""

    repo_id: str
    kind: Literal["model", "dataset", "space"] = "model"
    private: bool | None = None
    """Of a repository that has to be made; None leaves it to the Hub's setting. One that exists must agree."""
    revision: str | None = None
    """A branch, made where it is missing; None is main."""
    create_pr: bool = False
    """Open a pull request instead of committing to main."""
    token: str | None = None
    """None: the one that `hf auth login` or HF_TOKEN gave to the Hub's client."""

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        if self.create_pr and self.revision not in (None, "main"):
            raise UserError(f"revision {self.revision!r} with a pull request: expected one of them, as it is made against main")
        if self.revision and not re.fullmatch(r"(?!.*(\.\.|//))[\w][\w./-]{0,99}(?<![./])", self.revision, re.ASCII):
            raise UserError(f"revision {self.revision!r}: expected the name of a branch, such as 'main'")

    @property
    def api(self) -> HfApi:
        return HfApi(token=self.token)


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What a push left behind."""

    repo_id: str
    url: str
    commit: str
    private: bool
    changed: tuple[str, ...]
    """Paths that were sent or removed; empty where the repository held all of it already and no commit was made."""
    pull_request: str = ""
    """Its URL, where one was asked for."""


def check_repo_id(repo_id: str) -> str:
    """Returns the name of a repository. Raises `UserError` for one that is not `USER/NAME`.

    >>> check_repo_id("ada/lake")
    'ada/lake'
    """
    part = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    hostile = "--" in repo_id or ".." in repo_id or repo_id.endswith(".git") or len(repo_id) > 96
    if hostile or not re.fullmatch(f"{part}/{part}", repo_id):
        raise UserError(f"{repo_id!r} is no repository: expected USER/NAME, such as 'ada/lake' (letters, digits, '-', '_', '.')")
    return repo_id


def check_token(target: Target) -> None:
    """Raises `UserError` where nobody is logged in."""
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
        folder: its files, and nothing else, are pushed, under the same names.
        target: the repository, made where it is missing.
        message: title of the commit.
        tags: names that shall stand for a commit that holds these files; one that stands for other files is moved. Not made
            for a pull request.
        marker: a file that tells this sort of repository from others; one that has files but not this one is left alone.
        replaces: files, or folders with a final `/`, that belong to the push as a whole: those in the repository that are not
            in the folder are removed in the same commit.
        prepare: called before anything is compared, and again on a new head where somebody else was faster.

    Raises:
        UserError: for files that must not leave the machine, and for whatever the Hub refuses, in a person's words.
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
        log.warning("somebody else has just committed to %s: pushing onto the new head", target.repo_id)
        return onto_the_head()

    with hub_errors(target.repo_id):
        return retry_rate_limit(onto_the_head)


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
    if changed and target.create_pr and (found := _open_request(files, target, replaces)):
        commit, pull_request, changed = *found, []
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
    """The new commit, and the URL of its pull request, if that is what was asked for."""
    additions = [CommitOperationAdd(path, str(files[path])) for path in changed if path in files]
    removals = [CommitOperationDelete(path) for path in changed if path not in files]
    with warnings.catch_warnings():  # that Parquet is meant for datasets: a few results may lie beside an adapter
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file", UserWarning)
        made = target.api.create_commit(
            target.repo_id,
            [*additions, *removals],
            commit_message=message,
            repo_type=target.kind,
            revision=branch,
            parent_commit=head,
            create_pr=target.create_pr,
        )
    return made.oid, made.pr_url or ""


def _open(target: Target) -> bool:
    """Finds the repository, or makes it. Returns whether it is private."""
    api = target.api
    try:
        info = api.repo_info(target.repo_id, repo_type=target.kind)
    except RepositoryNotFoundError:
        api.create_repo(target.repo_id, repo_type=target.kind, private=target.private, exist_ok=True)
        info = api.repo_info(target.repo_id, repo_type=target.kind)
    private = bool(info.private)
    if target.private not in (None, private):
        now, asked = ("private", "public") if private else ("public", "private")
        raise UserError(f"{target.repo_id!r} is {now}, not {asked} as asked: change it in its settings, or name another one")
    return private


def _head(target: Target, branch: str) -> str:
    """The commit that a branch is at; makes the branch where it is missing."""
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
    """Paths that are missing there or have other content, and those there that the push replaces and does not have."""
    new = [path for path, file in files.items() if path not in there or not _same(file, there[path])]
    owned = [path for path in there if path in replaces or any(name.endswith("/") and path.startswith(name) for name in replaces)]
    return sorted(new + [path for path in owned if path not in files])


def _same(file: Path, there: RepoFile) -> bool:
    """Whether a file has the content of one on the Hub: that knows large ones by SHA-256, others by git's hash."""
    if file.stat().st_size != there.size:
        return False
    if there.lfs:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == there.lfs.sha256
    content_bytes = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content_bytes) + content_bytes).hexdigest() == there.blob_id


def _open_request(files: Mapping[str, Path], target: Target, replaces: Collection[str]) -> tuple[str, str] | None:
    """Commit and URL of an open pull request that holds just these files already."""
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
    """Makes each tag stand for a commit that holds the files; leaves alone one that does."""
    api, kind = target.api, target.kind
    there = {tag.name: tag.target_commit for tag in api.list_repo_refs(target.repo_id, repo_type=kind).tags} if tags else {}
    for tag in tags:
        at = there.get(tag)
        if at == commit or (at and not differences(files, listing(target, at), replaces)):
            continue
        if at:
            api.delete_tag(target.repo_id, tag=tag, repo_type=kind)
        api.create_tag(target.repo_id, tag=tag, revision=commit, repo_type=kind, exist_ok=True)
