"""What may leave this machine: the last check of a folder before it is pushed."""

from __future__ import annotations

import mmap
import re
import tempfile
from pathlib import Path

from msgrpo_hub.errors import UserError

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".h5", ".npy", ".npz")
"""Files that may run code when they are loaded."""

_TEXT = (".md", ".json", ".jsonl", ".toml", ".yaml", ".yml", ".svg", ".jinja", ".txt", ".csv", ".py", ".html")
_PART = re.compile(r"(?!\.git$|\.env)\.?[A-Za-z0-9_](?:[A-Za-z0-9 ._+=-]*[A-Za-z0-9_+=-])?")
_TOKEN = rb"hf_[A-Za-z0-9]{20,}"
_ROOTS = rb"home|Users|root|tmp|var|opt|mnt|media|srv|private|scratch|workspace|content|kaggle"
_ELSEWHERE = rb"\bfile:///|\b[A-Za-z]:\\{1,2}Users\b|~/[\w.]"


def check_folder(folder: Path, token: str | None = None) -> dict[str, Path]:
    """Checks every file of a folder and returns them by their names on the Hub.

    Args:
        folder: what is to be pushed.
        token: must not be in any file; nor may anything that looks like a token.

    Raises:
        UserError: for an unusual name, a link, a pickle, a token, or a path of this machine in a text file.
    """
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()
    }
    for name, path in files.items():
        if not all(_PART.fullmatch(part) for part in name.split("/")):
            raise UserError(f"a file named {name!r} is not pushed: expected letters, digits, '.', '_', '-', '+' and '='")
        if path.is_symlink():
            raise UserError(f"{name!r} is a link and is not pushed: expected a regular file")
        if path.suffix in PICKLED:
            raise UserError(f"{name!r} is not pushed, because loading it can run code: expected .safetensors")
        if secret := _secret(path, token):
            raise UserError(f"{name!r} is not pushed because it contains {secret}: remove it from the run's files and push again")
    return files


def _secret(path: Path, token: str | None) -> str:
    """Describes the secret in a file; empty if it has none."""
    if not path.stat().st_size:
        return ""
    tokens = b"|".join([_TOKEN, *([re.escape(token.encode())] if token else [])])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if re.search(tokens, content):
            return "a token"
        local = local_path(content) if path.suffix in _TEXT else ""
    return f"a path of this machine ({local}…)" if local else ""


def local_path(content: bytes | mmap.mmap) -> str:
    """The beginning of the first path of this machine in a text; empty if it has none.

    >>> local_path(b"see /" + b"home/ada/runs") == "/" + "home/a", local_path(b"see https://example.org/home/ada")
    (True, '')
    """
    own = [re.escape(str(path).strip("/").encode()) for path in (Path.home(), Path.cwd(), Path(tempfile.gettempdir()).resolve())]
    folders = b"|".join([_ROOTS, *filter(None, own)])
    match = re.search(rb"(?:(?<![\w.~/<])|(?<=\\[nrt]))/(?:" + folders + rb")/[\w.]|" + _ELSEWHERE, content)
    return match[0].decode(errors="replace") if match else ""
