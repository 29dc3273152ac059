"""Several vLLM servers as one: each request goes to the server with the fewest in flight, and a lost one gets its adapter anew.

A thread per server keeps it ready: it waits until the server answers, unloads the adapters that it had, loads the present version
and checks it (`vllm_guards`). A server is asked for replies only while it is ready, and is ready no longer once a request of it
fails. So a server that was started anew, hangs or has dropped the adapter is noticed, and no reply comes from one that has not
been checked since.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.vllm_guards import Probes, Version
from msgrpo_hub.models.vllm_server import LostError, Reply, VllmServer

log = logging.getLogger(__name__)


Stretch = tuple[str, int]
"""The URL of a server, and how often it had been made ready: what it did until it was lost."""


@dataclass
class _Member:
    """A server, and what is known of it."""

    server: VllmServer
    ready: str = ""
    """The version that it was checked with; empty since a request failed."""
    flying: int = 0
    """Its requests in flight."""
    times: int = 0
    """How often it was made ready."""
    had: list[str] = field(default_factory=list)
    """Names that it may have loaded."""
    why: str = ""
    """Why it was lost last."""


@dataclass
class VllmPool:
    """Servers that have the same version of the adapter."""

    servers: Sequence[VllmServer]
    probes: Probes
    patience: float = 900.0
    """Seconds to wait for a server to be ready, before an error."""
    pause: float = 1.0
    """Seconds before a lost server is tried again; each further pause is twice as long, up to `LONGEST_PAUSE`."""
    _version: Version | None = None
    _refused: UserError | None = None
    _closed: bool = False

    def __post_init__(self) -> None:
        self._members = {server.url: _Member(server) for server in self.servers}
        self._changed = Condition()
        self._keepers = [
            Thread(target=self._keep, args=(member,), name=f"keeps {member.server.url}", daemon=True)
            for member in self._members.values()
        ]
        for keeper in self._keepers:
            keeper.start()

    def publish(self, version: Version) -> None:
        """From now on, only this version replies. Returns when a first server is ready; the others join as they are."""
        with self._changed:
            self._version = version
            self._changed.notify_all()
        self._leave(self._take()[0])

    def sample(
        self, prompt: TokenIds, *, temperature: float, max_new_tokens: int, end_ids: Sequence[int]
    ) -> tuple[Reply, Stretch]:
        """A reply of the present version, and where it came from. A request that fails is repeated, on whichever server is ready.

        Raises:
            UserError: a server refuses or fails a check, or none was ready for as long as the patience.
        """
        while True:
            member, times = self._take()
            try:
                settings: Any = {"temperature": temperature, "max_new_tokens": max_new_tokens}
                return member.server.sample(self._name, prompt, end_ids=end_ids, **settings), (member.server.url, times)
            except LostError as error:
                self._lose(member, str(error), times)
            except UserError as error:
                self._refuse(error)
            finally:
                self._leave(member)

    def failed(self, stretches: Collection[Stretch]) -> set[Stretch]:
        """Checks their servers again. Returns those whose replies cannot be trusted.

        These are of a server that does not compute the version, and of one that was lost since: what it did last is unknown.
        """
        found = set()
        for url in sorted({url for url, _ in stretches}):
            member, sound = self._members[url], self._members[url].times
            assert self._version is not None
            try:
                self.probes.check_version(member.server, self._version)
            except (LostError, UserError) as error:
                self._lose(member, str(error), sound)
                sound = 0
            found |= {stretch for stretch in stretches if stretch[0] == url and stretch[1] != sound}
        return found

    def close(self) -> None:
        """Unloads the adapters from the servers that answer, and lets lost ones be."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = time.monotonic() + TO_UNLOAD
        for keeper in self._keepers:
            keeper.join(max(0.0, end - time.monotonic()))

    @property
    def _name(self) -> str:
        return self._version.name if self._version else ""

    def _take(self) -> tuple[_Member, int]:
        """The ready server with the fewest requests in flight, as soon as there is one, and how often it was made ready."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._refused or self._closed or self._ready(), self.patience):
                why = "; ".join(f"{url}: {member.why or 'no answer'}" for url, member in self._members.items())
                raise UserError(
                    f"no vLLM server was ready for {self.patience:.0f} s ({why}): expected one that answers, started with the "
                    "flags in the guide; then continue with --resume"
                )
            if self._refused:
                raise self._refused
            if self._closed:
                raise UserError("the servers were given up while episodes were played: continue with --resume")
            member = min(self._ready(), key=lambda member: member.flying)
            member.flying += 1
            return member, member.times

    def _ready(self) -> list[_Member]:
        return [member for member in self._members.values() if self._name and member.ready == self._name]

    def _leave(self, member: _Member) -> None:
        with self._changed:
            member.flying -= 1

    def _lose(self, member: _Member, why: str, times: int) -> None:
        """Nobody asks this server before it is checked again; unless it was since the request that failed was sent."""
        with self._changed:
            if not member.ready or member.times > times:
                return
            log.warning("%s is lost (%s): its turns are repeated, and it is checked again", member.server.url, why)
            member.ready, member.why = "", why
            self._changed.notify_all()

    def _refuse(self, error: UserError) -> None:
        with self._changed:
            self._refused = self._refused or error
            self._changed.notify_all()

    def _keep(self, member: _Member) -> None:
        """What the thread of a server does, to the end. Nobody else loads or unloads anything there."""
        pause = self.pause
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._version and member.ready != self._name))
                version = self._version
            if self._closed or version is None:
                self._part(member)
                return
            try:
                self._prepare(member, version)
                pause = self.pause
            except LostError as error:
                with self._changed:
                    if not member.why:
                        left = f"it is tried again, for {self.patience:.0f} s if no other is ready"
                        log.warning("%s: %s, expected a vLLM server: %s", member.server.url, error, left)
                    member.why = str(error)
                    self._changed.wait_for(lambda: self._closed, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except UserError as error:
                if version is self._version:  # the folder of an older version may be gone
                    self._refuse(error)
                    self._part(member)
                    return
            except Exception as error:  # or else nobody would keep the server, and the run would wait for it
                refused = UserError(f"the server {member.server.url!r} could not be asked ({type(error).__name__}: {error})")
                refused.__cause__ = error
                self._refuse(refused)
                return

    def _prepare(self, member: _Member, version: Version) -> None:
        """Gives a server a version in place of those that it had, and checks it."""
        started = time.monotonic()
        self.probes.check_server(member.server)
        self._unload(member)
        member.had.append(version.name)
        member.server.load(version.name, version.path)
        self.probes.check_version(member.server, version)
        with self._changed:
            member.ready, member.times = version.name, member.times + 1
            self._changed.notify_all()
        log.info("%s has %s after %.1f s", member.server.url, version.name, time.monotonic() - started)

    def _part(self, member: _Member) -> None:
        """Unloads what a server has, unless it is lost."""
        if member.ready or not member.why:
            try:
                self._unload(replace(member, server=replace(member.server, timeout=TO_UNLOAD)))
            except (LostError, UserError) as error:
                log.warning("%s: its adapter is not unloaded: %s", member.server.url, error)

    def _unload(self, member: _Member) -> None:
        while member.had:
            member.server.unload(member.had[0])
            member.had.pop(0)


LONGEST_PAUSE = 10.0
"""Seconds between two attempts at a server that does not answer."""

TO_UNLOAD = 10.0
"""Seconds in which servers unload their adapters at the end of a run."""
