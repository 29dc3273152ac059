"""Names of models: the built-in base, revisions, an adapter on a base, and names for publication."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

POCKET = "pocket"
"""The name of the built-in base model."""


def pocket_path() -> Path:
    """The folder of the built-in base in the installed package."""
    return Path(str(files("msgrpo_hub") / "pocket" / "model"))


def split_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """`org/model@revision` → name and revision. An existing path is never split.

    >>> split_revision("org/model@v1", None)
    ('org/model', 'v1')
    """
    if "@" in name and not Path(name).exists():
        name, _, at = name.rpartition("@")
        return name, revision or at
    return name, revision


def split_adapter(name: str) -> tuple[str, str]:
    """`base+adapter` → base and adapter; the adapter is empty if the name has none. A "+" in an existing path is not a separator.

    >>> split_adapter("org/model@v1+me/adapter"), split_adapter("pocket")
    (('org/model@v1', 'me/adapter'), ('pocket', ''))
    """
    separators = [i for i, character in enumerate(name) if character == "+"]
    if not separators or Path(name).exists():
        return name, ""
    separator = next((i for i in separators if i and Path(name[:i]).exists()), separators[0])
    return name[:separator], name[separator + 1 :]


def named(name: str) -> list[tuple[str, str | None]]:
    """The one or two sources in a player's name, base first, each with its revision."""
    base, adapter = split_adapter(name)
    return [split_revision(source, None) for source in ((base, adapter) if adapter else (base,))]


def public_name(source: str) -> str:
    """A name that can be published: the last part of a folder's path, or `pocket` for the built-in base."""
    path = Path(source)
    if source == POCKET or (path.is_dir() and path.resolve() == pocket_path().resolve()):
        return POCKET
    return f"folder:{path.resolve().name}" if path.is_dir() else source
