"""The lock of a folder, on disks with and without locks of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage import lock
from msgrpo_hub.training.run_folder import locked
from tests.evaluation.test_runner_interrupted import code_of, forked


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.ENOLCK])
def test_a_process_killed_on_another_host_leaves_no_lock_and_a_living_one_keeps_it(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has locks, or not. The killed process had a clock that is years ahead."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def hold() -> None:
        socket.gethostname = lambda: "another-host"
        with locked(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(60)

    if number:
        monkeypatch.setattr(fcntl, "flock", flock)
        monkeypatch.setattr(lock, "SILENCE", 0.6)
    first = forked(hold)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(UserError, match="is in use by another process"), locked(tmp_path):
        pass
    os.kill(first, signal.SIGKILL)
    assert code_of(first) == -signal.SIGKILL
    for file in tmp_path.glob(".lock*"):
        os.utime(file, (2e9, 2e9))
    with locked(tmp_path):
        if number:  # one that is overtaken ends
            (tmp_path / ".lock.alive").unlink()
            (tmp_path / ".lock.alive").touch()
            with pytest.raises(KeyboardInterrupt):
                time.sleep(5)
