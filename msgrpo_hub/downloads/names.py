"""Names of models: the built-in base, revisions, an adapter on a base, and names for publication."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from msgrpo_hub.errors import UserError

POCKET = "pocket"
"""The name of the built-in base model."""


def pocket_path() -> Path:
    """The folder of the built-in base in the installed package."""
    return Path(str(files("msgrpo_hub") / "pocket" / "model"))


def exists(path: str | Path) -> bool:
    """Whether a file or a folder has this path; none has one that is empty or too long."""
    with suppress(OSError, ValueError):
        return bool(str(path)) and Path(path).exists()
    return False


def is_folder(path: str | Path) -> bool:
    """Whether a folder has this path; none has one that is empty or too long."""
    with suppress(OSError, ValueError):
        return bool(str(path)) and Path(path).is_dir()
    return False


def split_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """`org/model@revision` → name and revision. An existing path is never split.

    Raises:
        UserError: the built-in base or a folder is named with a revision, which only a repository has.

    >>> split_revision("org/model@v1", None)
    ('org/model', 'v1')
    """
    if "@" in name and not exists(name):
        name, _, at = name.rpartition("@")
        revision = revision or at
    if revision is not None and (name == POCKET or is_folder(name)):
        raise UserError(f"{name!r} has no revision {revision!r}: expected {name!r} alone, or a repository on the Hub")
    return name, revision


def split_adapter(name: str) -> tuple[str, str]:
    """`base+adapter` → base and adapter; the adapter is empty if the name has none. A "+" in an existing path is not a separator.

    >>> split_adapter("org/model@v1+me/adapter"), split_adapter("pocket")
    (('org/model@v1', 'me/adapter'), ('pocket', ''))
    """
    separators = [i for i, character in enumerate(name) if character == "+"]
    if not separators or exists(name):
        return name, ""
    separator = next((i for i in separators if i and exists(name[:i])), separators[0])
    return name[:separator], name[separator + 1 :]


def named(name: str) -> list[tuple[str, str | None]]:
    """The one or two sources in a player's name, base first, each with its revision."""
    base, adapter = split_adapter(name)
    return [split_revision(source, None) for source in ((base, adapter) if adapter else (base,))]


def public_name(source: str) -> str:
    """A name that can be published: the last part of a folder's path, or `pocket` for the built-in base."""
    path = Path(source)
    if source == POCKET or (is_folder(path) and path.resolve() == pocket_path().resolve()):
        return POCKET
    return f"folder:{path.resolve().name}" if is_folder(path) else source


def without_secrets(name: str) -> str:
    """The name of a server's player, or a URL, without user, password and query, which may be secret.

    >>> without_secrets("endpoint:https://me:pass@example.org:8000/v1?key=secret#org/model")
    'endpoint:https://example.org:8000/v1#org/model'
    """
    return re.sub(r"^([^?#]*)\?[^#]*", r"\1", re.sub("//[^/?#]*@", "//", name, count=1))
