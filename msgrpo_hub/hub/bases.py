"""The published base of an adapter: a repository and a commit, never a folder of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash

from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.downloads.names import adapters_path, content_hash, is_folder, located, pocket_path, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.cards import render
from msgrpo_hub.hub.uploading import Pushed, Target, Where, check_repo_id, upload
from msgrpo_hub.training.config import TrainConfig

_LOADED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json")
"""Files besides the weights that decide a base's output."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """The published base model."""

    repo_id: str
    commit: str
    license: Mapping[str, Any] = field(default_factory=dict)
    """The front matter about the licence: `license`, `license_name` and `license_link`, as far as its card has them."""
    built_in: bool = False


def find_base(config: TrainConfig, given: str | None, trained_on: str = "", token: str | None = None) -> Base:
    """Finds where anyone can load the base that a run was trained on.

    Args:
        given: `USER/NAME[@revision]` of a repository that holds a local base.
        trained_on: commit of the base, or hash of its folder, as the run recorded it; may be empty.

    Raises `UserError` if the base is on this machine only, or the given repository holds other weights.
    """
    folder = Path(located(config.model))
    if local := is_folder(folder):
        if given is None:
            why = f"the base {config.model!r} is on this machine only: name the repository that holds it with --base USER/NAME; "
            raise UserError(f"{why}`msgrpo push base USER/NAME` publishes the built-in one")
        if trained_on and trained_on != content_hash(folder):
            raise UserError(f"the base {config.model!r} has changed since the run was trained: train again, or restore it")
        repo, revision = split_revision(given, None)
        check_repo_id(repo)
    else:
        repo, revision = split_revision(config.model, None)
        if len(trained_on) == 64 or repo.startswith((".", "/", "~")):
            raise UserError(f"the base {config.model!r} was a folder that no longer exists: put it back")
        if given:
            raise UserError(f"--base {given!r}: the run was trained on {config.model!r}, which is on the Hub; omit --base")
        revision = trained_on or revision
    with hub_errors(repo):
        info = HfApi(token=token).model_info(repo, revision=revision)
        commit = str(info.sha)
        there = Target(repo_id=repo, token=token).read(commit)[1] if local else {}
    for path in sorted(folder.iterdir()) if local else ():
        decides = path.suffix == ".safetensors" or path.name in _LOADED
        if decides and (path.name not in there or not _is_same(path, there[path.name])):
            raise UserError(f"{repo!r} is not the base of the adapter ({path.name} differs): expected equal files")
    card = info.card_data.to_dict() if info.card_data else {}
    terms = {name: card[name] for name in ("license", "license_name", "license_link") if card.get(name)}
    if "license_link" in terms and not str(terms["license_link"]).startswith("https://"):
        terms["license_link"] = f"https://huggingface.co/{repo}/blob/{commit}/{terms['license_link']}"
    return Base(repo_id=repo, commit=commit, license=terms, built_in=folder == pocket_path())


def _is_same(file: Path, there: RepoFile) -> bool:
    """Whether a file equals one on the Hub, which lists SHA-256 for large files and git's hash for others."""
    if there.lfs is None:
        return git_hash(file.read_bytes()) == there.blob_id
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == there.lfs.sha256


def push_base(repo_id: str, *, adapter: str | None = None, **where: Unpack[Where]) -> Pushed:
    """Publishes the built-in base, in one commit, so that others can load adapters trained on it; the card links to `adapter`."""
    target = Target(repo_id=repo_id, **where)
    with TemporaryDirectory() as folder:
        stage_base(repo_id, Path(folder), adapter=adapter)
        return upload(Path(folder), target, message="The built-in base of msgrpo_hub", marker="scores.json")


def stage_base(repo_id: str, folder: Path, *, adapter: str | None = None) -> None:
    """Writes the content of the built-in base's repository into a folder."""
    for name in filter(None, (repo_id, adapter)):
        check_repo_id(name)
    for path in sorted(pocket_path().iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja", ".model"):
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "replay.svg").write_bytes((adapters_path() / "lake.svg").read_bytes())
    (folder / "README.md").write_text(render_base(repo_id, adapter), encoding="utf-8")


def render_base(repo_id: str, adapter: str | None = None) -> str:
    """The README of the built-in base, from the one in the package."""
    about = ModelCard.load(pocket_path() / "README.md")
    introduction, _, rest = about.text.strip().partition("\n## ")
    title, _, introduction = introduction.partition("\n")
    text = {"title": title, "introduction": introduction.strip(), "rest": f"## {rest}"}
    return render("base.md.jinja", about.data, repo_id=repo_id, adapter=adapter, **text)
