"""One process at a time trains in a run folder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.callbacks import Callback, Update

LOCK, HOLDER = ".lock", ".lock.json"
"""The lock of the operating system, which goes with its process, and the file that names the holder."""

STALE_AFTER = 3600
"""Seconds after its last update from which a holder on another machine, whose lock cannot be seen here, counts as dead."""


@contextmanager
def locked(folder: Path, made: Sequence[Path] = ()) -> Iterator[None]:
    """Holds the lock of a run folder.

    Args:
        folder: of the run.
        made: the folders that were made for this run, the innermost first; they are removed if nothing is left in them.

    Raises:
        UserError: another process trains there.
    """
    lock, holder = FileLock(folder / LOCK), folder / HOLDER
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise _taken(folder, holder) from error
    try:
        if _lives_elsewhere(holder):
            raise _taken(folder, holder)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(OSError):  # a full disk: the lock holds all the same
            holder.write_text(json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": now}), encoding="utf-8")
        try:
            yield
        finally:
            holder.unlink(missing_ok=True)
    finally:
        with suppress(OSError):  # the folder is gone
            if made and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


@dataclass(frozen=True)
class SignOfLife(Callback):
    """Dates the holder's file after every update, for machines that do not see the lock."""

    folder: Path

    def on_update(self, update: Update) -> None:  # noqa: ARG002
        with suppress(OSError):
            os.utime(self.folder / HOLDER)


def _lives_elsewhere(holder: Path) -> bool:
    """Whether a process on another machine holds the folder. A shared disk may not show its lock, but shows its signs of life."""
    if not holder.exists() or time.time() - holder.stat().st_mtime > STALE_AFTER:
        return False
    return _read(holder).get("host", "") not in ("", socket.gethostname())


def _read(holder: Path) -> dict[str, object]:
    try:
        known = json.loads(holder.read_text(encoding="utf-8"))
        return {name: known[name] for name in ("process", "host", "since")}
    except (OSError, ValueError, TypeError, LookupError):  # not there yet, or cut by a kill
        return {}


def _taken(folder: Path, holder: Path) -> UserError:
    known = _read(holder)
    who = f"process {known['process']} on {known['host']}, since {known['since']}" if known else "another process"
    return UserError(
        f"{str(folder)!r} is in use by {who}: wait until that training ends, or name another --output-dir; "
        f"if its machine has died, delete {HOLDER} there"
    )
