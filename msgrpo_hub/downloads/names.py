"""Names of models: the built-in ones, revisions, an adapter on a base, names for publication, and content hashes of folders."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from msgrpo_hub.errors import UserError

POCKET = "pocket"

PUBLIC_POCKET = "msgrpo_hub/pocket/model"
"""The end of the built-in base's path in every installation. Adapters name their base by it."""

_HASHED = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")  # merges.txt and vocab.txt belong to tokenizers

exists, is_folder = os.path.exists, os.path.isdir  # unlike pathlib's, False for empty, overlong and malformed paths


def pocket_path() -> Path:
    """The folder of the built-in base in the installed package."""
    return Path(str(files("msgrpo_hub") / "pocket" / "model"))


def adapters_path() -> Path:
    """The folder of the built-in adapters, each in a folder of its name."""
    return Path(str(files("msgrpo_hub") / "pocket" / "adapters"))


@cache
def built_in_adapters() -> tuple[str, ...]:
    """The names of the built-in adapters, all trained on the built-in base."""
    return tuple(sorted(path.parent.name for path in adapters_path().glob("*/adapter_config.json")))


def located(name: str) -> str:
    """The folder of a built-in model, an expanded `~/` path, or any other name unchanged."""
    if name == POCKET:
        return str(pocket_path())
    if name in built_in_adapters():
        return str(adapters_path() / name)
    return str(Path(name).expanduser()) if name.startswith("~/") else name


def split_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """Splits `org/model@revision` into name and revision. An existing path is never split, and has no revision.

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
    """Splits `base+adapter`; the adapter is empty if the name has none. A "+" in an existing path is not a separator.

    >>> split_adapter("org/model@v1+me/adapter"), split_adapter("pocket")
    (('org/model@v1', 'me/adapter'), ('pocket', ''))
    """
    separators = [i for i, character in enumerate(name) if character == "+"]
    if not separators or exists(name):
        return name, ""
    separator = next((i for i in separators if i and exists(name[:i])), separators[0])
    return name[:separator], name[separator + 1 :]


def public_name(source: str) -> str:
    """A name that can be published: a built-in name, or `folder:` and the last part of a folder's path."""
    folder = Path(located(source))
    if not is_folder(folder):
        return source
    built_in = (name for name in (POCKET, *built_in_adapters()) if Path(located(name)).resolve() == folder.resolve())
    return next(built_in, f"folder:{folder.resolve().name}")


def content_hash(folder: Path) -> str:
    """SHA-256 of a folder's weights and settings, by name and content. Raises `UserError` if it has none."""
    paths = sorted(path for path in folder.glob("*") if path.suffix in _HASHED)
    if not paths:
        raise no_model(str(folder), "it has no weights or settings")
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:  # read in pieces: a large base does not fit into memory
            digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def no_model(folder: str, why: str) -> UserError:
    """The error for a folder without a model, with a hint if it is the folder of a run."""
    inside = str(Path(folder) / "adapter")
    hint = f"; did you mean {inside!r}?" if is_folder(inside) else ""
    return UserError(f"no model in the folder {folder!r}: expected config.json, tokenizer and weights there ({why}){hint}")


def is_http(url: str) -> bool:
    """Whether a text is the http or https URL of a server, with an ASCII host.

    >>> is_http("http://localhost:8000/v1"), is_http("http://\N{SNOWMAN}.net"), is_http("localhost:8000")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for an invalid port
        host = parts.hostname or ""
        host.encode("idna")  # raises ValueError for an invalid host
    except ValueError:
        return False
    return bool(host) and host.isascii() and parts.scheme in ("http", "https") and url.isprintable() and " " not in url


def without_secrets(name: str) -> str:
    """Removes user, password and query, which may be secret, from a URL or the name of a served player.

    >>> without_secrets("endpoint:https://me:pass@example.org:8000/v1?key=secret#org/model")
    'endpoint:https://example.org:8000/v1#org/model'
    """
    return re.sub(r"^([^?#]*)\?[^#]*", r"\1", re.sub("//[^/?#]*@", "//", name, count=1))
