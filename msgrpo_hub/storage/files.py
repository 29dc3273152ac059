"""Atomic file writes: after a kill, the file is either the old one or the new one. Full disks and damaged files are one line."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from msgrpo_hub.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
DISK = (*_FULL, *_FORBIDDEN, errno.EIO)
"""What the system says of a disk that takes no more."""

AGAIN = "run the same command again"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, then moves it into place."""
    beside = path.with_name(f".{path.name}.new")
    try:
        write(beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())  # Windows wants a file open for writing
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Writes JSON atomically; with sorted keys equal content gives equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=sort_keys, ensure_ascii=False) + "\n"
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8", newline="\n"))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Lets the caller fill a folder whose content then appears in `path` at once, or not at all.

    Raises:
        UserError: `path` is there and not empty.
    """
    inside = path / ".new"  # left by a kill: not content
    if path.exists() and (not path.is_dir() or {*path.iterdir()} - {inside}):
        raise UserError(f"{str(path)!r} exists and is not empty: expected a new or an empty folder")
    was_there = path.exists()
    try:
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir(parents=True)
        yield inside
        for child in inside.iterdir():
            child.rename(path / child.name)
    finally:
        shutil.rmtree(inside, ignore_errors=True)
        if not was_there:
            with suppress(OSError):  # it is not empty: all went well
                path.rmdir()


@contextmanager
def disk_errors(path: Path, safe: Callable[[], str], again: str = AGAIN) -> Iterator[None]:
    """Turns a disk that is full, read-only or gone into a `UserError` that says what is safe and what to do.

    Errors of files that are elsewhere pass.

    Args:
        path: the folder or file that is written.
        safe: says what of it is safe, as a clause; called after the fault.
        again: what to do once there is room.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number, reason = _fault(error)
        if number == errno.ENOENT and not path.exists():
            raise UserError(f"cannot write to {str(path)!r}, which is gone: nothing of it is safe; {AGAIN}") from error
        if isinstance(error, OSError) and (number not in DISK or _is_elsewhere(error, path)):
            raise
        remedy = "allow writing there" if number in _FORBIDDEN else "make room"
        raise UserError(f"cannot write to {str(path)!r} ({reason}): {safe()}; {remedy}, then {again}") from error


def _fault(error: OSError | SafetensorError) -> tuple[int, str]:
    """Number and text of the system's error. safetensors has them in a text of its own: `… (os error 28)`."""
    found = re.search(r"os error (\d+)", str(error))
    number = (error.errno or 0) if isinstance(error, OSError) else int(found[1]) if found else 0
    return number, os.strerror(number) if number else str(error)


def _is_elsewhere(error: OSError, path: Path) -> bool:
    """Whether an error names a file that is neither in `path` nor above it."""
    named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes, Path)) else path
    return not (named.is_relative_to(path) or path.is_relative_to(named))


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        path: of the file.
        expected: what the file should hold, for the message.

    Raises:
        UserError: the file is missing, damaged, or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"it holds {type(value).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(path)!r} cannot be read ({why}): expected {expected}") from error
    return value
