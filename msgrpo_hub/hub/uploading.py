"""The only upload path to the Hub: one commit per push. Pushing the same files again makes no commit.

The client sends only the files that differ from the repository. A push that fails at any point can be repeated.
"""

from __future__ import annotations

import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.downloads.fetching import VOCABULARIES
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
    collection: str | None


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
    """Open a pull request instead of committing to main; repeating the push opens another one."""
    token: str | None = None
    """None uses the token of `hf auth login` or HF_TOKEN."""
    collection: str | None = None
    """The title or the slug of a collection that gets the repository; a missing title makes one for the repository's owner."""

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        if self.create_pr and self.revision not in (None, "main"):
            raise UserError(f"revision {self.revision!r} with a pull request: expected only one of them")

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
    """Paths that the commit changed; empty if no commit was made, because the repository has the files."""
    pull_request: str = ""
    """URL of the pull request if `create_pr` is set and something differs from main."""


def check_repo_id(repo_id: str) -> str:
    """Returns the name of a repository. Raises `UserError` unless it is `USER/NAME`."""
    try:
        validate_repo_id(repo_id)
        if "/" not in repo_id:
            raise HFValidationError("it has no '/'")
    except HFValidationError as error:
        given = f"{repo_id!r} is not a repository name"
        raise UserError(f"{given}: expected USER/NAME, as in 'ada/lake' (letters, digits, '-', '_', '.')") from error
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
    marker: str = "",
    replaces: Collection[str] = (),
    create: Mapping[str, Any] | None = None,
    beside: Sequence[tuple[str, str]] = (),
) -> Pushed:
    """Makes a repository hold some files, with at most one commit, and none if a file must not leave this machine.

    Args:
        source: a folder, or a function that makes the files. The function is called again if another push comes first.
        target: the repository, created if missing.
        marker: a file that identifies this kind of repository. A repository that has files but not the marker is refused.
        replaces: files, or folders with a final `/`, that the push owns, besides the subfolders of `source`. The push removes
            the owned files that it does not have.
        beside: (kind, `USER/NAME`) of other repositories for the collection.

    Raises:
        UserError: a file must not leave this machine, or the Hub refuses.
    """
    check_token(target.token)
    api, repo, kind, branch = target.api, target.repo_id, target.kind, target.revision or "main"
    mine = [*replaces, *(f"{path.name}/" for path in source.iterdir() if path.is_dir())] if isinstance(source, Path) else replaces
    with hub_errors(repo), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file", UserWarning)
        for attempt in ("first", "last"):
            # 1) the present files, and the new ones
            try:
                head, there = target.read(branch, may_be_missing=True)
            except RevisionNotFoundError:
                head, there = target.read()  # a new branch starts from main
            if head and target.private is not None and target.private != api.repo_info(repo, repo_type=kind).private:
                has, asked = ("public", "private") if target.private else ("private", "public")
                raise UserError(f"{repo!r} is {has}, not {asked} as requested: change its settings, or name another repository")
            if marker and marker not in there and set(there) - {"README.md", ".gitattributes"}:
                raise UserError(f"{repo!r} holds something else (files, but no {marker}): name another repository")
            files = files_in(source) if isinstance(source, Path) else source(head, there)
            check_files(files, target.token)
            # 2) the repository, the branch and the commit
            if not head:
                api.create_repo(repo, repo_type=kind, private=target.private, exist_ok=True, **(create or {}))
            if branch != "main":
                api.create_branch(repo, branch=branch, repo_type=kind, exist_ok=True)
            additions = [CommitOperationAdd(name, str(file) if isinstance(file, Path) else file) for name, file in files.items()]
            deletions = [CommitOperationDelete(path) for path in owned(there, mine) if path not in files]
            try:
                made = api.create_commit(
                    repo,
                    [*additions, *deletions],
                    commit_message=message,
                    repo_type=kind,
                    revision=branch,
                    parent_commit=head or None,
                    create_pr=target.create_pr,
                )
                break
            except HfHubHTTPError as error:
                if error.response.status_code != 412 or attempt == "last":
                    raise
                log.warning("%s has a new commit by another push: pushing onto the new head", repo)
        now = there if made.oid == head else target.read(made.oid)[1]
        private = bool(api.repo_info(repo, repo_type=kind).private)
        if slug := target.collection:
            if "/" not in slug:
                owner = repo.partition("/")[0]
                slug = api.create_collection(slug, namespace=owner, private=private, exists_ok=True).slug
            for item_type, item in [(kind, repo), *beside]:
                api.add_collection_item(slug, item, item_type, exists_ok=True)  # type: ignore[arg-type]
    before, after = ({path: entry.blob_id for path, entry in tree.items()} for tree in (there, now))
    changed = {path for path, _ in before.items() ^ after.items()} - {".gitattributes"}
    return Pushed(
        repo_id=repo,
        url=f"{api.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo}",
        commit=made.oid,
        private=private,
        changed=tuple(sorted(changed)),
        pull_request=made.pr_url or "",
    )


def owned(paths: Iterable[str], names: Collection[str]) -> list[str]:
    """The paths among these names, or in folders among them, which end in `/`."""
    return [path for path in paths if any(path == name or (name[-1] == "/" and path.startswith(name)) for name in names)]


# ---- what may leave this machine


def files_in(folder: Path) -> dict[str, Path]:
    """The files in a folder, by their names on the Hub."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def check_files(files: Files, token: str | None = None) -> None:
    """Checks every file of a push.

    Raises:
        UserError: a hidden or oddly named file, a pickle, a path of this machine in a text file, the given token or
            the one of this machine, or anything that looks like a token.
    """
    own = [re.escape(text.encode()) for text in {token, get_token()} if text]
    tokens = b"|".join([rb"hf_[A-Za-z0-9]{20,}", *own])
    for name, file in files.items():
        if not re.fullmatch(r"(\w[\w .+=-]*/)*\w[\w .+=-]*", name, re.ASCII):
            raise UserError(f"a file named {name!r} is not pushed: expected letters, digits, '.', '_', '-', '+' and '='")
        if name.endswith(PICKLED):
            raise UserError(f"{name!r} is not pushed, because loading it can run code: expected .safetensors")
        content = file if isinstance(file, bytes) else file.read_bytes()
        local = local_path(content) if name.endswith(_TEXT) and name not in VOCABULARIES else ""  # tokens may look like paths
        if secret := "a token" if re.search(tokens, content) else f"a path of this machine ({local}…)" if local else "":
            raise UserError(f"{name!r} is not pushed because it contains {secret}: remove it from the run's files and push again")


def local_path(content: bytes) -> str:
    """The beginning of the first path of this machine in a text; empty if it has none.

    >>> local_path(b"see /" + b"home/ada/runs") == "/" + "home/a", local_path(b"see https://example.org/home/ada")
    (True, '')
    """
    own = [re.escape(str(path).strip("/").encode()) for path in (Path.home(), Path.cwd(), Path(tempfile.gettempdir()).resolve())]
    folders = b"|".join([_ROOTS, *filter(None, own)])
    match = re.search(rb"(?:(?<![\w.~/<])|(?<=\\[nrt]))/(?:" + folders + rb")/[\w.]|" + _ELSEWHERE, content)
    return match[0].decode(errors="replace") if match else ""
