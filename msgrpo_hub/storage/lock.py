"""The lock of a folder: the operating system's, or a heartbeat on a disk without locks."""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, LeaseCompromise, SoftFileLease, Timeout

from msgrpo_hub.errors import UserError

SILENCE = 15.0
"""Seconds without a heartbeat after which a process counts as dead, whatever host names and clocks say."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


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
