"""Names of models: the built-in base, revisions, an adapter on a base, and names for publication."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from msgrpo_hub.errors import UserError

POCKET = "pocket"
"""The name of the built-in base model."""

PUBLIC_POCKET = "msgrpo_hub/pocket/model"
"""How the settings of an adapter name the built-in base where they leave this machine: it is found in any installation."""


def pocket_path() -> Path:
    """The folder of the built-in base in the installed package."""
    return Path(str(files("msgrpo_hub") / "pocket" / "model"))


def adapters_path() -> Path:
    """The folder of the built-in adapters, each in a folder of its name."""
    return Path(str(files("msgrpo_hub") / "pocket" / "adapters"))


@cache
def built_in_adapters() -> tuple[str, ...]:
    """The names of the built-in adapters, which belong to the built-in base."""
    return tuple(sorted(path.parent.name for path in adapters_path().glob("*/adapter_config.json")))


def located(name: str) -> str:
    """The folder of a built-in model, or one below `~`; any other name unchanged."""
    if name in built_in_adapters():
        return str(adapters_path() / name)
    return str(pocket_path()) if name == POCKET else str(Path(name).expanduser()) if name.startswith("~/") else name


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
    if revision is not None and is_folder(located(name)):
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
    """A name that can be published: that of a built-in model, or the last part of a folder's path."""
    folder = Path(located(source))
    if not is_folder(folder):
        return source
    built_in = (name for name in (POCKET, *built_in_adapters()) if Path(located(name)).resolve() == folder.resolve())
    return next(built_in, f"folder:{folder.resolve().name}")


def adapter_inside(folder: str | Path) -> str:
    """A hint for a user who named the folder of a run in place of its adapter; empty if the folder has no adapter."""
    inside = Path(folder, "adapter")
    return f"; did you mean {str(inside)!r}?" if is_folder(inside) else ""


def is_http(url: str) -> bool:
    """Whether a server may have this URL: http or https, a host in ASCII, and no characters that are invalid in a URL.

    >>> is_http("http://localhost:8000/v1"), is_http("http://\N{SNOWMAN}.net"), is_http("localhost:8000")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if the port is invalid
        host = parts.hostname or ""
        host.encode("idna")  # and this, if no machine can have the name
    except ValueError:
        return False
    return bool(host) and host.isascii() and parts.scheme in ("http", "https") and url.isprintable() and " " not in url


def without_secrets(name: str) -> str:
    """The name of a server's player, or a URL, without user, password and query, which may be secret.

    >>> without_secrets("endpoint:https://me:pass@example.org:8000/v1?key=secret#org/model")
    'endpoint:https://example.org:8000/v1#org/model'
    """
    return re.sub(r"^([^?#]*)\?[^#]*", r"\1", re.sub("//[^/?#]*@", "//", name, count=1))
