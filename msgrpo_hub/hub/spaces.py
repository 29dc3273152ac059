"""Deploys the demo as a Space: `space_app/`, a copy of this package and its pinned requirements, in one commit."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from huggingface_hub import HfApi, SpaceHardware

from msgrpo_hub import __version__
from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import exists
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.hub.uploading import Pushed, Target, Where, check_repo_id, upload

SETTINGS = "space.json"
"""File beside app.py that names the adapter the Space shows first, and its commit."""

_PACKAGE = (".py", ".toml", ".jinja", ".json", ".safetensors", ".md", ".css", ".js", ".html", ".svg")
"""Suffixes of the package's files; caches and other files are not copied."""


def push_space(repo_id: str, *, adapter: str | None = None, hardware: str | None = None, **where: Unpack[Where]) -> Pushed:
    """Deploys the demo in one commit. Deploying the same version and adapter again makes no commit.

    Args:
        adapter: `USER/NAME[@revision]` of a public LoRA adapter, pinned to its commit. None uses the one in the package.
        hardware: for example `zero-a10g`. None uses the Hub's default for a new Space and keeps an existing Space as it is.

    Raises `UserError` if the adapter is missing or private, or the Hub refuses, for example without a paid plan (402).
    """
    target = Target(repo_id=repo_id, kind="space", **where)
    known = [str(one.value) for one in SpaceHardware]
    if hardware is not None and hardware not in known:
        raise unknown("hardware", hardware, known)
    with TemporaryDirectory() as staged:
        stage_space(repo_id, Path(staged), adapter=adapter, token=target.token)
        create = {"space_sdk": "gradio", "space_hardware": hardware}
        message, marker = f"The demo of msgrpo_hub {__version__}", "msgrpo_hub/pocket/model/config.json"
        pushed = upload(Path(staged), target, message=message, marker=marker, replaces=(SETTINGS,), create=create)
    if hardware and not target.create_pr:
        with hub_errors(repo_id):
            runtime = target.api.space_info(repo_id).runtime
            if hardware != ((runtime.requested_hardware or runtime.hardware) if runtime else None):  # a request restarts it
                target.api.request_space_hardware(repo_id, SpaceHardware(hardware))
    return pushed


def stage_space(repo_id: str, folder: Path, *, adapter: str | None = None, token: str | None = None) -> None:
    """Writes the content of the Space into a folder, where `python app.py` runs it too."""
    check_repo_id(repo_id)
    copy(app_folder(), folder, (*_PACKAGE, ".txt", ".png"))
    package = Path(str(files("msgrpo_hub")))
    copy(package, folder / "msgrpo_hub", _PACKAGE)
    for name, place, kind in (("model_cards", "hub/model_cards", ".jinja"), ("benchmark/suites", "evaluation/suites", ".toml")):
        if not (package / place).is_dir():  # a clone has them at its top level, a wheel has them here
            copy(package.parent / name, folder / "msgrpo_hub" / place, (kind,))
    if adapter is None:
        return
    sources = resolve(adapter)
    if not sources.adapter or "/" not in sources.adapter or exists(sources.adapter):
        given = f"--adapter {adapter!r}"
        raise UserError(f"{given}: expected USER/NAME of a LoRA adapter on the Hub; `msgrpo push adapter` makes one")
    for repo, commit in ((sources.adapter, sources.adapter_commit), (sources.base, sources.base_commit)):
        if not exists(repo):
            with hub_errors(repo):
                info = HfApi(token=token).model_info(repo, revision=commit)
            if info.private or info.gated:
                what = "private" if info.private else "gated"
                raise UserError(f"{repo!r} is {what}, so that a Space needs a token to load it: expected a public repository")
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
