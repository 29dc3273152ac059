"""Deploys the demo as a Space: `space_app/`, a copy of this package and its pinned requirements, in one commit."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml  # type: ignore[import-untyped]
from huggingface_hub import HfApi, SpaceHardware
from huggingface_hub.errors import HfHubHTTPError

from msgrpo_hub import __version__
from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.downloads.names import exists
from msgrpo_hub.downloads.sources import Sources, resolve
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.uploading import Pushed, Target, check_repo_id, check_token, upload

MARKER = "msgrpo_hub/pocket/model/config.json"
"""A file of the demo that other Spaces do not have."""

SETTINGS = "space.json"
"""File beside app.py that names the adapter the Space shows first, and its commit."""

_LOADED = (".safetensors", ".json", ".jinja", ".model")
"""Files of a model that are downloaded when the Space is built."""
_PACKAGE = (".py", ".toml", ".jinja", ".json", ".safetensors", ".md", ".css", ".js", ".html")
"""Files of the package; caches and other files are not copied."""

NO_PLAN = (
    "push with --hardware zero-a10g (a few are free), or write it with --dry-run FOLDER and run FOLDER/app.py anywhere, or "
    "`msgrpo space` here"
)
"""What to do where the Hub asks for a paid plan."""


def push_space(
    repo_id: str,
    *,
    adapter: str | None = None,
    hardware: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
) -> Pushed:
    """Deploys the demo in one commit. Deploying the same version and adapter again makes no commit.

    Args:
        repo_id: `USER/NAME` of the Space; created if missing.
        adapter: `USER/NAME[@revision]` of a public LoRA adapter to show, pinned to its commit and downloaded when the Space
            is built. None uses the adapter in the package.
        hardware: for example `zero-a10g`. None uses the Hub's default for a new Space and keeps that of an existing one.
        private: visibility of a new Space; None uses the Hub's setting. An existing Space must agree.
        revision: a branch; None is main, the branch that runs.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        create_pr: open a pull request instead.

    Raises:
        UserError: the adapter is missing or private, or the Hub refuses. If it asks for a paid plan (402), the message
            lists the alternatives.
    """
    target = Target(repo_id=repo_id, kind="space", private=private, revision=revision, token=token, create_pr=create_pr)
    check_token(target)
    wanted = _hardware(hardware) if hardware else None
    with TemporaryDirectory() as folder:
        stage_space(repo_id, Path(folder), adapter=adapter, token=token)
        message = f"The demo of msgrpo_hub {__version__}"
        pushed = push_staged(Path(folder), target, "gradio", message, MARKER, NO_PLAN, hardware=wanted, also=(SETTINGS,))
    if wanted and not create_pr:
        _request(target, wanted)
    return pushed


def stage_space(repo_id: str, folder: Path, *, adapter: str | None = None, token: str | None = None) -> None:
    """Writes the content of the Space into a folder, where `python app.py` runs it too."""
    check_repo_id(repo_id)
    copy(app_folder(), folder, (*_PACKAGE, ".txt", ".svg", ".png"))
    package = Path(str(files("msgrpo_hub")))
    copy(package, folder / "msgrpo_hub", _PACKAGE)
    for name, place, kind in (("model_cards", "hub/model_cards", ".jinja"), ("benchmark/suites", "evaluation/suites", ".toml")):
        if not (package / place).is_dir():  # a clone has them at its top level, a wheel has them here
            copy(package.parent / name, folder / "msgrpo_hub" / place, (kind,))
    if adapter is not None:
        sources = public_adapter(adapter, token)
        readme = folder / "README.md"
        readme.write_text(with_adapter(readme.read_text(encoding="utf-8"), sources, token), encoding="utf-8")
        settings = {"adapter": f"{sources.adapter}@{sources.adapter_commit}"}
        (folder / SETTINGS).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def app_folder() -> Path:
    """The folder of the app: in the package in a wheel, at the top level in a clone."""
    package = Path(str(files("msgrpo_hub")))
    shipped = package / "space_app"
    return shipped if shipped.is_dir() else package.parent / "space_app"


def copy(source: Path, target: Path, kinds: tuple[str, ...]) -> None:
    """Copies the files of a folder with these suffixes, except hidden ones and the app's copy in a wheel."""
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        hidden = any(part.startswith((".", "__pycache__", "space_app")) for part in inside.parts)
        if path.is_file() and path.suffix in kinds and not hidden:
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            (target / inside).write_bytes(path.read_bytes())


def public_adapter(name: str, token: str | None) -> Sources:
    """The pinned sources of an adapter that a Space can load without a token. Raises `UserError` for any other adapter."""
    sources = resolve(name)
    if not sources.adapter or "/" not in sources.adapter or exists(sources.adapter):
        raise UserError(f"--adapter {name!r}: expected USER/NAME of a LoRA adapter on the Hub; `msgrpo push adapter` makes one")
    check_repo_id(sources.adapter)
    for repo in (sources.adapter, sources.base):
        if Path(repo).is_dir():
            continue
        with hub_errors(repo):
            info = HfApi(token=token).model_info(repo)
        if info.private or info.gated:
            what = "private" if info.private else "gated"
            raise UserError(f"{repo!r} is {what}, so that a Space needs a token to load it: expected a public repository")
    return sources


def with_adapter(readme: str, sources: Sources, token: str | None) -> str:
    """Adds the Space's models to the front matter, to be downloaded at their commits when it is built."""
    metadata, text = split_card(readme)
    models = [(sources.adapter, sources.adapter_commit)]
    if not Path(sources.base).is_dir():
        models.append((sources.base, sources.base_commit))
    preload = [f"{repo} {','.join(_loaded(repo, commit, token))} {commit}" for repo, commit in models]
    metadata |= {"models": [repo for repo, _ in models], "preload_from_hub": preload}
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000)}---\n{text}"


def _loaded(repo: str, commit: str, token: str | None) -> list[str]:
    with hub_errors(repo):
        names = HfApi(token=token).list_repo_files(repo, revision=commit)
    return [name for name in names if "/" not in name and Path(name).suffix in _LOADED]


def _hardware(name: str) -> SpaceHardware:
    try:
        return SpaceHardware(name)
    except ValueError as error:
        raise unknown("hardware", name, [str(known.value) for known in SpaceHardware]) from error


def push_staged(
    folder: Path,
    target: Target,
    sdk: str,
    message: str,
    marker: str,
    elsewhere: str,
    *,
    hardware: SpaceHardware | None = None,
    also: Collection[str] = (),
) -> Pushed:
    """Makes a Space hold a folder, in one commit.

    Args:
        folder: its content; what the Space has else below these names is removed.
        target: the Space, created if missing.
        sdk: `gradio` or `docker`.
        message: title of the commit.
        marker: a file that other Spaces do not have.
        elsewhere: what to do instead, for the message if the Hub asks for a paid plan.
        hardware: of a new Space; None leaves that to the Hub.
        also: further files that the push owns.

    Raises:
        UserError: the Space holds something else, or the Hub refuses.
    """
    api = target.api
    with hub_errors(target.repo_id):
        if not api.repo_exists(target.repo_id, repo_type="space"):
            try:
                api.create_repo(target.repo_id, repo_type="space", space_sdk=sdk, space_hardware=hardware, private=target.private)
            except HfHubHTTPError as error:
                if error.response.status_code != 402:
                    raise
                raise UserError(
                    f"the Hub asks for a paid plan to run {target.repo_id!r} ({_server_message(error)}): {elsewhere}"
                ) from error
    owned = sorted({path.name + "/" * path.is_dir() for path in folder.iterdir()}.union(also))
    return upload(folder, target, message=message, marker=marker, replaces=owned)


def _request(target: Target, hardware: SpaceHardware) -> None:
    """Asks for hardware if it is not what the Space has: asking again would restart it."""
    with hub_errors(target.repo_id):
        runtime = target.api.space_info(target.repo_id).runtime
        if hardware != ((runtime.requested_hardware or runtime.hardware) if runtime else None):
            target.api.request_space_hardware(target.repo_id, hardware)


def _server_message(error: HfHubHTTPError) -> str:
    return re.sub(r"\s+", " ", error.server_message or str(error))[:200]
