"""Live sessions of an OpenEnv server: a cache of the states that they stand in, as many as the server allows.

A session that is needed for another state is reset and led there again, so a server of a single session serves a whole group,
only more slowly.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from msgrpo_hub.errors import UserError

MOST = 64
"""Sessions of one game that are open at once; each has a thread."""
_PATIENCE = 5.0
"""Seconds to wait for a session of a server that has none free, such as after a run that has just ended."""
_PAUSE = 0.1
"""Seconds between two tries."""


class Lost(Exception):  # noqa: N818
    """The connection of a session has ended, and the session with it."""


class Full(Exception):  # noqa: N818
    """The server has no free session."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server answers to a reset or a step."""

    observation: Mapping[str, Any]
    reward: float
    done: bool


class Session(Protocol):
    """One live session. Each call may raise `Lost`; a refusal of the server is a `UserError`."""

    def reset(self, **start: Any) -> Shown:
        """Begins an episode. Raises `Full` if the server has no free session."""

    def step(self, action: Mapping[str, Any]) -> Shown:
        """Plays one turn."""

    def close(self) -> None:
        """Ends the session; never raises."""


class Sessions:
    """The live sessions of a server, by what they stand in: a context for the time of a rollout.

    Rollouts may overlap, each in a thread of its own. After the last of them no session is open, and at the latest after the
    process. Whoever holds a session keeps, releases or closes it: other threads may wait for it.
    """

    def __init__(self, connect: Callable[[], Session], most: int = MOST) -> None:
        self._connect, self._most, self._limit = connect, most, most
        self._live: OrderedDict[Hashable, Session] = OrderedDict()
        self._idle: list[Session] = []
        self._held: set[Session] = set()
        self._opening, self._last_held, self._rollouts = 0, 0.0, 0
        self._changed = threading.Condition(threading.Lock())
        weakref.finalize(self, _close_all, self._live, self._idle, self._held)

    def __enter__(self) -> None:
        with self._changed:
            self._rollouts += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._rollouts -= 1
            if not self._rollouts:
                _close_all(self._live, self._idle, self._held)
                self._limit = self._most
                self._changed.notify_all()

    def __len__(self) -> int:
        """How many sessions are open, or about to be."""
        return len(self._live) + len(self._idle) + len(self._held) + self._opening

    def take(self, place: Hashable) -> Session | None:
        """The session that stands there, if one does."""
        with self._changed:
            if session := self._live.pop(place, None):
                self._held.add(session)
            return session

    def started(self, **start: Any) -> tuple[Session, Shown]:
        """A session after a reset, and what it shows: an idle one, a new one, or the one that was used last.

        The episodes of a rollout take turns, so the one that was used last is needed last. While other threads hold every
        session that may be open, this waits for one of them.

        Raises:
            UserError: no server answers, or it refuses.
        """
        begun, losses = time.monotonic(), 0
        while True:
            used = self._used()
            session = used or self._opened()
            try:
                shown = session.reset(**start)
            except Lost:
                self._end(session)
                if not used:  # else it was idle for too long, or the server has been started anew: the next one is another
                    losses += 1
                    self._refused(begun, "closes every session at its start: look at its log", lower=losses > 1)
            except Full:
                self._end(session)
                remedy = "end its other clients, or raise its max_concurrent_envs"
                self._refused(begun, f"has had no free session for {_PATIENCE:g} seconds: {remedy}", lower=True)
            except BaseException:
                self._end(session)
                raise
            else:
                return session, shown

    def _used(self) -> Session | None:
        """A session that nobody needs first. None: there is room for a new one, which `_opened` opens."""
        with self._changed:
            while not self._idle and not self._live and len(self) >= self._limit:
                self._changed.wait()
            if not self._idle and len(self) < self._limit:
                self._opening += 1
                return None
            session = self._idle.pop() if self._idle else self._live.popitem()[1]
            self._held.add(session)
            return session

    def _opened(self) -> Session:
        session = None
        try:
            session = self._connect()
        finally:
            with self._changed:
                self._opening -= 1
                if session:
                    self._held.add(session)
                self._changed.notify_all()
        return session

    def _refused(self, begun: float, what: str, *, lower: bool) -> None:
        """After a refusal: no more sessions than are open now, if there are any. Otherwise a pause, within the patience."""
        with self._changed:
            if lower and len(self):
                self._limit = len(self)
                return
            waited = time.monotonic() - max(begun, self._last_held)
        if waited > _PATIENCE:
            raise UserError(f"the OpenEnv server {what}")
        time.sleep(_PAUSE)

    def keep(self, place: Hashable, session: Session) -> None:
        """Gives back a session that stands somewhere."""
        with self._given_back(session):
            if other := self._live.pop(place, None):
                self._idle.append(other)
            self._live[place] = session

    def release(self, session: Session) -> None:
        """Gives back a session whose episode is over."""
        with self._given_back(session):
            self._idle.append(session)

    @contextmanager
    def closed_on_error(self, session: Session) -> Iterator[None]:
        """A time after which a session is closed if an error ended it, also Ctrl-C."""
        try:
            yield
        except BaseException:
            self._last_held = time.monotonic()
            self._end(session)
            raise

    @contextmanager
    def _given_back(self, session: Session) -> Iterator[None]:
        with self._changed:
            self._held.discard(session)
            yield
            self._last_held = time.monotonic()
            self._changed.notify_all()

    def _end(self, session: Session) -> None:
        """Closes a session before another may take its room."""
        session.close()
        with self._changed:
            self._held.discard(session)
            self._changed.notify_all()


def _close_all(live: OrderedDict[Hashable, Session], idle: list[Session], held: set[Session]) -> None:
    while idle or live or held:
        (idle.pop() if idle else live.popitem()[1] if live else held.pop()).close()
