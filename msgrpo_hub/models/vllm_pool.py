"""Several vLLM servers as one policy: each request goes to the ready server with the fewest requests in flight.

A server is ready once it has loaded and passed the checks of the current version of the adapter (`vllm_server.Probes`). It stays
ready until one of its requests fails; then it must load and pass again. So a server that restarted, hung or lost the adapter
never contributes a reply unnoticed. Before a thread takes a server, it prepares any server whose next attempt is due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition, Lock

import numpy as np

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.http_client import RequestError, in_threads, pause_after
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.vllm_server import Probes, Reply, Version, VllmServer

LONGEST_PAUSE = 10.0
"""Seconds between two attempts at a server that does not answer."""

TO_UNLOAD = 10.0
"""Seconds that a server has for unloading its adapters at the end of a run."""

log = logging.getLogger(__name__)

Stretch = tuple[str, int]
"""The URL of a server and the number of times it had been prepared: a period without a failure."""


@dataclass
class _Member:
    """A server and its state."""

    server: VllmServer
    ready: str = ""
    """The version it has passed the checks with; empty after a failure."""
    preparing: bool = False
    in_flight: int = 0
    """Requests that it is working on."""
    times: int = 0
    """How often it was prepared."""
    loaded: list[str] = field(default_factory=list)
    """Names that it may have loaded."""
    why: str = ""
    """Its last failure; empty while it is ready."""
    failures: int = 0
    """Failed attempts to prepare it, in a row."""
    due: float = 0.0
    """Monotonic time of the next attempt to prepare it."""


@dataclass
class VllmPool:
    """Servers that have the same version of the adapter."""

    servers: Sequence[VllmServer]
    probes: Probes
    patience: float = 900.0
    """Seconds to wait for a ready server before an error."""
    pause: float = 1.0
    """Seconds before the second attempt to prepare a server; later pauses are longer."""
    _version: Version | None = None
    _closed: bool = False

    def __post_init__(self) -> None:
        self._members = {server.url: _Member(server) for server in self.servers}
        self._changed = Condition()

    def publish(self, version: Version) -> None:
        """Makes this the only version that replies, and prepares all servers at the same time.

        Returns when each server is ready or has failed once, and at least one is ready. Raises as `sample` does.
        """
        with self._changed:
            self._version = version
        in_threads(lambda _: self._release(self._take()[0]), range(len(self._members)), len(self._members))

    def sample(
        self, prompt: TokenIds, *, temperature: float, max_new_tokens: int, end_ids: Sequence[int]
    ) -> tuple[Reply, Stretch]:
        """A reply of the current version, and its origin. A failed request is repeated on a server that is ready.

        Raises:
            UserError: a server refuses a request or fails a check, or none was ready within the patience.
        """
        while True:
            member, times = self._take()
            assert self._version is not None
            try:
                reply = member.server.sample(
                    self._version.name, prompt, temperature=temperature, max_new_tokens=max_new_tokens, end_ids=end_ids
                )
                return reply, (member.server.url, times)
            except RequestError as error:
                self._lose(member, str(error), times)
            finally:
                self._release(member)

    def failed(self, stretches: Collection[Stretch]) -> set[Stretch]:
        """Checks the servers of some stretches again and returns the stretches whose replies cannot be trusted.

        These belong to servers that do not sample from the version, or that failed later: their last work was not checked.
        """
        untrusted = set()
        for url in {url for url, _ in stretches}:
            member = self._members[url]
            sound = member.times if member.ready else 0
            assert self._version is not None
            try:
                self.probes.check_version(member.server, self._version)
            except (RequestError, UserError) as error:
                self._lose(member, str(error), member.times)
                sound = 0
            untrusted |= {stretch for stretch in stretches if stretch[0] == url and stretch[1] != sound}
        return untrusted

    def close(self) -> None:
        """Unloads the adapters from the servers that respond."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(member.preparing for member in self._members.values()), TO_UNLOAD)
        for member in self._members.values():
            if not member.why:
                self._unload(member)

    def _take(self) -> tuple[_Member, int]:
        """The ready server with the fewest requests in flight, and how often it was prepared. Prepares servers that are due."""
        deadline = time.monotonic() + self.patience
        while True:
            with self._changed:
                if self._closed:
                    raise UserError("the servers were released while episodes were played: continue with --resume")
                now, name = time.monotonic(), self._version.name if self._version else None
                ready = [member for member in self._members.values() if member.ready == name]
                idle = [member for member in self._members.values() if member not in ready and not member.preparing]
                due = next((member for member in idle if member.due <= now), None)
                if not due and ready:
                    chosen = min(ready, key=lambda member: member.in_flight)
                    chosen.in_flight += 1
                    return chosen, chosen.times
                if not ready and now >= deadline:
                    why = "; ".join(f"{url}: {member.why or 'no answer'}" for url, member in self._members.items())
                    raise UserError(
                        f"no vLLM server was ready for {self.patience:.0f} s ({why}): expected one that answers, started with "
                        "the flags in the guide; then continue with --resume"
                    )
                if not due:
                    self._changed.wait(min([deadline, *(member.due for member in idle)]) - now)
                    continue
                due.preparing = True
            self._prepare(due)

    def _prepare(self, member: _Member) -> None:
        """Replaces the versions on a server by the current one, and checks it. Raises `UserError` if it refuses or fails."""
        version, started, passed, why = self._version, time.monotonic(), False, ""
        assert version is not None
        try:
            member.server.check_health()
            self.probes.check_server(member.server)
            while member.loaded:
                member.server.unload(member.loaded[0])
                member.loaded.pop(0)
            member.loaded.append(version.name)
            member.server.load(version.name, version.path)
            self.probes.check_version(member.server, version)
            passed = True
            log.info("%s has %s after %.1f s", member.server.url, version.name, time.monotonic() - started)
        except RequestError as error:
            why = str(error)
            if not member.why:
                log.warning("%s: %s, expected a vLLM server: trying again", member.server.url, why)
        except UserError:
            self._unload(member)
            raise
        finally:
            with self._changed:
                member.preparing, member.why = False, why
                if passed:
                    member.ready, member.times, member.failures = version.name, member.times + 1, 0
                else:
                    member.failures += 1
                    member.due = time.monotonic() + min(LONGEST_PAUSE, pause_after(member.failures, self.pause))
                self._changed.notify_all()

    def _release(self, member: _Member) -> None:
        with self._changed:
            member.in_flight -= 1

    def _lose(self, member: _Member, why: str, times: int) -> None:
        """Stops sending requests to a server until it is prepared again, unless it was since the failed request was sent."""
        with self._changed:
            if not member.ready or member.times > times:
                return
            log.warning("%s does not respond (%s): repeating its requests, checking it again", member.server.url, why)
            member.ready, member.why, member.due = "", why, 0.0
            self._changed.notify_all()

    def _unload(self, member: _Member) -> None:
        server = replace(member.server, timeout=TO_UNLOAD)
        try:
            for name in member.loaded:
                server.unload(name)
            member.loaded.clear()
        except (RequestError, UserError) as error:
            log.warning("%s: its adapter is not unloaded: %s", member.server.url, error)


_TOKENIZER = Lock()
"""Tokenizers are not thread-safe."""


@dataclass(frozen=True)
class VllmPolicy:
    """Samples on servers; encodes and decodes here. The servers have their own randomness: `rngs` is not used."""

    agent: LanguageModel
    """Supplies tokenizer, chat template, temperature and limits; its weights are not used."""
    pool: VllmPool
    stretches: set[Stretch] = field(default_factory=set)
    """Origins of the replies so far."""

    @property
    def prompt_format(self) -> PromptFormat | None:
        """The model's prompt format."""
        return self.agent.prompt_format

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt, one after the other."""
        agent, completions = self.agent, []
        for prompt in prompts:
            with _TOKENIZER:
                [prompt_ids] = agent.encode([prompt])
            reply, stretch = self.pool.sample(
                prompt_ids,
                temperature=agent.temperature,
                max_new_tokens=agent.max_new_tokens,
                end_ids=sorted(agent.engine.end_ids),
            )
            self.stretches.add(stretch)
            finish: Finish = "stop" if reply.token_ids[-1] in agent.engine.end_ids else "length"
            with _TOKENIZER:
                [text] = agent.encoder.decode([(reply.token_ids, finish)])
            completions.append(
                Completion(text=text, finish=finish, prompt_ids=prompt_ids, token_ids=reply.token_ids, log_probs=reply.log_probs)
            )
        return completions
