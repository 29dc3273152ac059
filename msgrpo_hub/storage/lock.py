"""The lock of a folder: the operating system's, or a heartbeat on a disk without locks."""

from __future__ import annotations

import _thread
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, LeaseCompromise, SoftFileLease, Timeout

SILENCE = 15.0
"""Seconds without a heartbeat after which a process counts as dead, whatever host names and clocks say."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def hold(path: Path, busy: Callable[[], object]) -> Iterator[None]:
    """Holds a lock. If another process holds it, calls `busy`, which raises or returns to wait.

    The operating system frees the lock of a killed process. A disk without locks, as some network disks, gets a second file:
    its holder touches that every few seconds, and others take it after `SILENCE`. A holder that lost it is interrupted.
    """

    def lost(seen: LeaseCompromise) -> None:
        if seen.reason == "owner-changed":
            _thread.interrupt_main()

    lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        busy()
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        beside, poll = path.with_name(f"{path.name}.alive"), SILENCE / 30
        lock = SoftFileLease(beside, lease_duration=SILENCE, poll_interval=poll, on_compromise=lost)
        try:
            lock.acquire(timeout=1.2 * SILENCE)
        except Timeout:
            busy()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
