"""The published base of an adapter: a repository and a commit, never a folder of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError

from msgrpo_hub import __version__
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.downloads.listing import cached_commit
from msgrpo_hub.downloads.names import adapters_path, is_folder, located, pocket_path, split_revision
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.hub.adapter_card import Base
from msgrpo_hub.hub.card_rules import LICENSES, split_card
from msgrpo_hub.hub.cards import checked, front_matter, render
from msgrpo_hub.hub.uploading import Pushed, Target, check_repo_id, differences, listing, upload
from msgrpo_hub.training.config import TrainConfig

_PUSHED = (".safetensors", ".json", ".jinja", ".model")
_LOADED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json")
"""Files besides the weights that decide a base's output."""

SCORES = "scores.json"
"""A file of the built-in base that other models do not have."""

_LONGEST_LICENSE = 100  # characters of its name


def local_base(config: TrainConfig) -> Path | None:
    """The folder of a local base; None for a base on the Hub."""
    folder = Path(located(config.model))
    return folder if is_folder(folder) else None


def find_base(config: TrainConfig, given: str | None, trained_on: str = "", token: str | None = None) -> Base:
    """Where anyone can load the base that a run was trained on.

    Args:
        config: configuration of the run.
        given: `USER/NAME[@revision]` of a repository that holds a local base.
        trained_on: commit of the base, or hash of its folder, as the run recorded it; may be empty.
        token: for the Hub.

    Raises:
        UserError: the base is on this machine only, or the given repository holds other weights.
    """
    folder = local_base(config)
    if folder is None:
        repo, revision = split_revision(config.model, None)
        if len(trained_on) == 64 or repo.startswith((".", "/", "~")):
            raise UserError(f"the base {config.model!r} was a folder that no longer exists: put it back")
        if given:
            raise UserError(f"--base {given!r}: the run was trained on {config.model!r}, which is on the Hub; omit --base")
        check_base_name(repo)
        commit = trained_on or cached_commit(repo, revision) or _commit_on_hub(repo, revision, token)
        return _described(repo, commit, token, built_in=False)
    if given is None:
        raise UserError(
            f"the base {config.model!r} is on this machine only: name the repository that holds it with --base USER/NAME; "
            "`msgrpo push base USER/NAME` publishes the built-in one"
        )
    if trained_on and trained_on != content_hash(folder):
        raise UserError(f"the base {config.model!r} has changed since the run was trained: train again, or restore it")
    repo, revision = split_revision(given, None)
    commit = _commit_on_hub(check_repo_id(repo), revision, token)
    with hub_errors(repo):
        other = differences(_content(folder), listing(Target(repo_id=repo, token=token), commit))
    if other:
        raise UserError(f"{repo!r} is not the base that the adapter was trained on ({other[0]} differs): expected equal files")
    return _described(repo, commit, token, built_in=folder == pocket_path())


def push_base(
    repo_id: str, *, private: bool | None = None, revision: str | None = None, token: str | None = None, create_pr: bool = False
) -> Pushed:
    """Publishes the built-in base with its card, in one commit, so that others can load adapters trained on it."""
    target = Target(repo_id=repo_id, private=private, revision=revision, token=token, create_pr=create_pr)
    with TemporaryDirectory() as folder:
        stage_base(repo_id, Path(folder))
        return upload(Path(folder), target, message="The built-in base of msgrpo_hub", marker=SCORES)


def stage_base(repo_id: str, folder: Path) -> None:
    """Writes the content of the built-in base's repository into a folder."""
    for path in sorted(pocket_path().iterdir()):
        if path.suffix in _PUSHED:
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "replay.svg").write_bytes((adapters_path() / "lake.svg").read_bytes())
    about = (pocket_path() / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(render_base(check_repo_id(repo_id), about), encoding="utf-8")


def check_base_name(repo: str) -> None:
    """Refuses a text that cannot be the name of a repository. (A few old repositories have no `USER/`.)"""
    if "/" in repo:
        check_repo_id(repo)
    elif not repo.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UserError(f"{repo!r} is not a base: expected a repository or an existing folder")


def _content(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir() if path.suffix == ".safetensors" or path.name in _LOADED}


def _commit_on_hub(repo: str, revision: str | None, token: str | None) -> str:
    with hub_errors(repo):
        return str(HfApi(token=token).model_info(repo, revision=revision).sha)


def _described(repo: str, commit: str, token: str | None, *, built_in: bool) -> Base:
    """The base with the licence that its card states, as the Hub reads it; several are one of a name of its own."""
    with hub_errors(repo):
        with suppress(EntryNotFoundError):  # a gated base tells its card to all, but not its files
            get_hf_file_metadata(hf_hub_url(repo, "config.json", revision=commit), token=token)
        card = HfApi(token=token).model_info(repo, revision=commit).card_data
    metadata: dict[str, Any] = card.to_dict() if card else {}
    named, name = metadata.get("license"), metadata.get("license_name")
    if isinstance(named, list):
        named = ", ".join(map(str, named))  # one stays itself
    if not isinstance(named, str) or not named:
        return Base(repo_id=repo, commit=commit, license=None, built_in=built_in)
    if named in LICENSES and named != "other":
        return Base(repo_id=repo, commit=commit, license=named, built_in=built_in)
    link = plain(str(metadata.get("license_link") or ""))
    return Base(
        repo_id=repo,
        commit=commit,
        license="other",
        license_name=plain(str(name or (named if named != "other" else "license-of-the-base")))[:_LONGEST_LICENSE],
        license_link=link
        if link.startswith("https://")
        else f"https://huggingface.co/{repo}/blob/{commit}/{link or 'README.md'}",
        built_in=built_in,
    )


def render_base(repo_id: str, about: str) -> str:
    """The README of the built-in base, from the card in the package, which has its held-out probe and its limits."""
    metadata, text = split_card(about)
    introduction, _, rest = text.strip().partition("\n## ")
    title, _, introduction = introduction.partition("\n")
    values = {
        "repo_id": repo_id,
        "front_matter": front_matter(metadata),
        "title": title,
        "introduction": introduction.strip(),
        "rest": f"## {rest}",
        "version": __version__,
    }
    return checked(render("base.md.jinja", values))
