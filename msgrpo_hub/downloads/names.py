"""Names of models: what stands for the built-in base, a revision, an adapter on a base, and how others read a name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

POCKET = "pocket"
"""The name of the built-in base model."""


def pocket_path() -> Path:
    """The folder of the built-in base, in the installed package."""
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
    """`base+adapter` → both, the adapter empty where there is none. A "+" in a path of this machine belongs to the path.

    >>> split_adapter("org/model@v1+me/adapter"), split_adapter("pocket")
    (('org/model@v1', 'me/adapter'), ('pocket', ''))
    """
    cuts = [i for i, character in enumerate(name) if character == "+"]
    if not cuts or Path(name).exists():
        return name, ""
    cut = next((i for i in cuts if i and Path(name[:i]).exists()), cuts[0])
    return name[:cut], name[cut + 1 :]


def named(name: str) -> list[tuple[str, str | None]]:
    """The one or two sources in a player's name, base first, each with the revision that it asks for."""
    base, adapter = split_adapter(name)
    return [split_revision(source, None) for source in ((base, adapter) if adapter else (base,))]


def public_name(source: str) -> str:
    """A name for others to read: of a folder its last part, and the built-in base by the name that it has everywhere."""
    path = Path(source)
    if source == POCKET or (path.is_dir() and path.resolve() == pocket_path().resolve()):
        return POCKET
    return f"folder:{path.resolve().name}" if path.is_dir() else source
