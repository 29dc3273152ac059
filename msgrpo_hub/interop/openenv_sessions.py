"""Live sessions of an OpenEnv server: a cache of the states that they stand in, as many as the server allows.

A session that is needed for another state is reset and led there again, so a server of a single session serves a whole group,
only more slowly.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgrpo_hub.errors import UserError

MOST = 64
"""Sessions of one game that are open at once; each has a thread."""
_PATIENCE = 5.0
"""Seconds to wait for a session of a server that has none free, such as after a run that has just ended."""


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
    process.
    """

    def __init__(self, connect: Callable[[], Session], most: int = MOST) -> None:
        self._connect, self._most, self._limit = connect, most, most
        self._live: OrderedDict[Hashable, Session] = OrderedDict()
        self._idle: list[Session] = []
        self._rollouts, self._lock = 0, threading.Lock()
        weakref.finalize(self, _close_all, self._live, self._idle)

    def __enter__(self) -> None:
        with self._lock:
            self._rollouts += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._rollouts -= 1
            if not self._rollouts:
                _close_all(self._live, self._idle)
                self._limit = self._most

    def __len__(self) -> int:
        return len(self._live) + len(self._idle)

    def take(self, place: Hashable) -> Session | None:
        """The session that stands there, if one does; whoever takes a session gives it back, or closes it."""
        with self._lock:
            return self._live.pop(place, None)

    def started(self, **start: Any) -> tuple[Session, Shown]:
        """A session after a reset, and what it shows: an idle one, a new one, or the one that was used last.

        The episodes of a rollout take turns, so the one that was used last is needed last.

        Raises:
            UserError: no server answers, or it refuses.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            session = self._unused() or self._connect()
            try:
                return session, session.reset(**start)
            except Lost:
                session.close()  # it was idle for too long, or the server has been started anew: the next one is another
                if not len(self) and time.monotonic() > deadline:
                    raise UserError("the OpenEnv server closes every session at its start: look at its log") from None
            except Full:
                session.close()
                if self._live:
                    self._limit = len(self._live)
                elif time.monotonic() > deadline:
                    raise UserError(
                        f"the OpenEnv server has had no free session for {_PATIENCE:g} seconds: end its other clients, or raise "
                        "its max_concurrent_envs"
                    ) from None
                else:
                    time.sleep(0.1)
            except BaseException:
                session.close()
                raise

    def _unused(self) -> Session | None:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            return self._live.popitem()[1] if len(self._live) >= self._limit else None

    def keep(self, place: Hashable, session: Session) -> None:
        """Gives back a session that stands somewhere."""
        with self._lock:
            if other := self._live.pop(place, None):
                self._idle.append(other)
            self._live[place] = session

    def release(self, session: Session) -> None:
        """Gives back a session whose episode is over."""
        self._idle.append(session)


def _close_all(live: OrderedDict[Hashable, Session], idle: list[Session]) -> None:
    while idle or live:
        (idle.pop() if idle else live.popitem()[1]).close()
