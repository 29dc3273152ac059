"""Atomic file writes, the lock of a folder, and disk errors and damaged files as one line."""

from __future__ import annotations

import _thread
import errno
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, LeaseCompromise, SoftFileLease, Timeout
from safetensors import SafetensorError

from msgrpo_hub.errors import UserError

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, *_FORBIDDEN)
"""Error numbers of a disk that cannot be written."""

AGAIN = "run the same command again"
SILENCE = 15.0
"""Seconds without a heartbeat after which a process counts as dead, whatever host names and clocks say."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file, then moves it to `path`. After a kill, `path` is the old or the new file."""
    beside = path.with_name(f".{path.name}.new")
    try:
        write(beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())  # Windows needs a file open for writing
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def files_below(folder: Path, *names: str) -> list[Path]:
    """The files of these names below a folder, sorted; a folder that vanishes meanwhile, or cannot be read, has none."""
    return sorted(Path(place, name) for place, _, files in os.walk(folder) for name in names if name in files)


def write_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Writes JSON atomically; with sorted keys equal content gives equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=sort_keys, ensure_ascii=False) + "\n"
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8", newline="\n"))


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError` with the expected content if it is missing, damaged, or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"it holds {type(value).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(path)!r} cannot be read ({why}): expected {expected}") from error
    return value


@contextmanager
def disk_errors(path: Path, safe: Callable[[], str], again: str = AGAIN) -> Iterator[None]:
    """Turns a full, read-only or missing disk under `path` into a `UserError`: `safe()` says what is safe, `again` what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        found = re.search(r"os error (\d+)", str(error))  # in a SafetensorError
        number, named = getattr(error, "errno", int(found[1]) if found else 0) or 0, getattr(error, "filename", None)
        if number == errno.ENOENT and not path.exists():
            raise UserError(f"cannot write to {str(path)!r}, which is gone: nothing of it is safe; {AGAIN}") from error
        file = Path(os.fsdecode(named)) if isinstance(named, str | bytes | Path) else path
        elsewhere = not (file.is_relative_to(path) or path.is_relative_to(file))
        if isinstance(error, OSError) and (number not in DISK or elsewhere):
            raise
        reason = os.strerror(number) if number else str(error)
        remedy = "allow writing there" if number in _FORBIDDEN else "make room"
        raise UserError(f"cannot write to {str(path)!r} ({reason}): {safe()}; {remedy}, then {again}") from error


@contextmanager
def hold(path: Path, busy: str, *, wait: bool = False) -> Iterator[None]:
    """Holds a lock. If another process holds it, raises `UserError` with the text `busy`, or prints that and waits.

    The operating system frees the lock of a killed process. A disk without locks, as some network disks, gets a second file:
    its holder touches that every few seconds, and others take it after `SILENCE`. A holder that lost it is interrupted.
    """

    def lost(seen: LeaseCompromise) -> None:
        if seen.reason == "owner-changed":  # `nohup` ignores SIGINT; a process that handles no signal ends as if killed
            handled = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
            _thread.interrupt_main(handled[0]) if handled else os._exit(1)

    lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
    patience = 0.0
    while not lock.is_locked:
        try:
            lock.acquire(timeout=patience)
        except Timeout as error:
            if not wait:
                raise UserError(busy) from error
            print(busy, file=sys.stderr, flush=True)
            patience = -1  # without a limit
        except OSError as error:
            if error.errno not in _NO_LOCKS or isinstance(lock, SoftFileLease):
                raise
            beside, patience = path.with_name(f"{path.name}.alive"), 1.2 * SILENCE
            lock = SoftFileLease(beside, lease_duration=SILENCE, poll_interval=SILENCE / 30, on_compromise=lost)
    try:
        yield
    finally:
        lock.release()
