"""A training on two processes, of which one or both are killed."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass, field

import psutil

from tests.command import Finished, Running

PATIENCE = 15.0
"""Seconds that the surviving process may wait for the killed one. Then the survivor is killed too, as torchrun does."""

FIRST, SECOND, BOTH = slice(0, 1), slice(1, 2), slice(None)
"""Which processes a signal goes to."""


@dataclass
class TwoProcesses:
    """The first process, which forks the second. When one has died, the other fails to reach it and ends.

    The survivor waits for a minute if the other dies before both have connected.
    """

    first: Running
    victims: slice
    both: list[psutil.Process] = field(default_factory=list, init=False)
    reached: bool = field(default=False, init=False)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.first.pid)
            self.both = [first, *first.children()]
            for process in self.both[self.victims]:
                process.send_signal(number)
                self.reached = True

    def wait(self) -> Finished:
        """Waits for the end of both. If a signal reached one and the first failed, that counts as killed."""
        if self.reached:
            _, waiting = psutil.wait_procs(self.both, timeout=PATIENCE)
            for process in waiting:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        ended = self.first.wait()
        psutil.wait_procs(self.both, timeout=120)
        return Finished(-signal.SIGKILL, ended.out, ended.err) if self.reached and ended.code else ended
