"""Waiting lines: requests play in the order in which they came, and only so many may wait.

A full line refuses at once and says when to come back. Models, scripted players and results datasets have lines of their own,
so that a scripted player never waits for a model. A bundled replay needs no line.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice

from msgrpo_hub.errors import UserError

visitor: ContextVar[str] = ContextVar("visitor", default="")
"""The address of the visitor who asks; empty for a call from this process."""

MEMORY = 0.3
"""Weight of the newest request in the mean time of a request."""


class Line:
    """A waiting line.

    A request first takes a place, which it keeps until it is answered, and then one turn for each batch of episodes. Only the
    place can be refused. A visitor holds at most half of the places.

    Args:
        name: what its requests wait for, as a refusal says it.
        at_once: number of turns at the same time.
        places: number of requests in the line, playing or waiting.
    """

    def __init__(self, name: str, at_once: int, places: int) -> None:
        self.name, self.at_once, self.places = name, at_once, places
        self._changed = threading.Condition()
        self._visitors: Counter[str] = Counter()
        self._turns: deque[object] = deque()  # those that play, then those that wait
        self._seconds, self._since = 1.0, 0.0  # mean time from one answer to the next, and when the last one was given

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request. Raises `UserError` if the line is full, or if the visitor has half of it."""
        who = visitor.get()
        with self._changed:
            self._check(who)
            if not self._visitors:
                self._since = time.monotonic()
            self._visitors[who] += 1
        try:
            yield
        finally:
            with self._changed:
                self._leave(who)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until those who came before have played."""
        mine = object()
        with self._changed:
            self._turns.append(mine)
        try:
            with self._changed:
                self._changed.wait_for(lambda: mine in islice(self._turns, self.at_once))
            yield
        finally:
            with self._changed:
                self._turns.remove(mine)
                self._changed.notify_all()

    def _check(self, who: str) -> None:
        taken, own = self._visitors.total(), self._visitors[who]
        if taken < self.places and (not who or own < self.places // 2):
            return
        found = f"{taken} requests wait" if taken >= self.places else f"{own} requests from your address wait"
        raise UserError(f"{found} for {self.name}, as many as may: try again in about {self._wait(taken)} seconds")

    def _wait(self, taken: int) -> int:
        """Seconds until half of the line has been answered."""
        each = max(self._seconds, time.monotonic() - self._since)
        return max(1, math.ceil(each * taken / 2))

    def _leave(self, who: str) -> None:
        now = time.monotonic()
        self._seconds += MEMORY * (now - self._since - self._seconds)
        self._since = now
        self._visitors[who] -= 1
        self._visitors += Counter()  # leaves out visitors with no place


MODELS = Line("a model", at_once=1, places=12)
"""One model is loaded and plays at a time."""

SCRIPTED = Line("a scripted player", at_once=2, places=24)

DATASETS = Line("a results dataset", at_once=1, places=4)
"""Every run of a results dataset is verified, which takes seconds to minutes."""

MOST_THREADS = 2 * (MODELS.places + SCRIPTED.places + DATASETS.places)
"""Requests that the server works on at the same time. Half of them are free for requests that need no line."""
