"""Several vLLM servers as one policy: each request goes to the ready server with the fewest requests in flight.

A server is ready once it has loaded and passed the checks of the current version of the adapter (`vllm_server.Probes`). A server
whose request fails gets no more requests until it has loaded and passed again, in the next `publish`. So a server that restarted,
hung or lost the adapter never contributes a reply unnoticed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.http_client import RequestError, in_threads, pause_after
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.vllm_server import Probes, Reply, Version, VllmServer

TO_UNLOAD = 10.0
"""Seconds that a server has for unloading its adapters at the end of a run."""

log = logging.getLogger(__name__)


@dataclass
class Member:
    """A server and its state."""

    server: VllmServer
    ready: Version | None = None
    """The version it has passed the checks with; None after a failure."""
    in_flight: int = 0
    """Requests that it is working on."""
    loaded: list[str] = field(default_factory=list)
    """Names that it may have loaded."""
    why: str = ""
    """Its last failure; empty while it is ready."""
    preparing: Lock = field(default_factory=Lock)
    """Held while adapters are loaded and unloaded."""


class VllmPool:
    """Servers that have the same version of the adapter.

    Args:
        servers: the servers.
        probes: the texts of their checks.
        patience: seconds to wait for a ready server before an error.
        pause: seconds before the second attempt to prepare a server; later pauses are longer.
    """

    def __init__(self, servers: Sequence[VllmServer], probes: Probes, *, patience: float = 900.0, pause: float = 1.0) -> None:
        self.members = [Member(server) for server in servers]
        self.probes, self.patience, self.pause = probes, patience, pause
        self._lock, self._closed = Lock(), False

    def publish(self, version: Version) -> None:
        """Makes this the only version that replies, and prepares all servers that do not have it, at the same time.

        Returns when each server is ready or has failed, and at least one is ready.

        Raises:
            UserError: a server refuses a request or fails a check, none was ready within the patience, or the pool is closed.
        """
        deadline = time.monotonic() + self.patience
        for attempt in count(1):
            behind = [member for member in self.members if member.ready is not version]
            for refusal in in_threads(lambda member: self._prepare(member, version), behind, len(behind)):
                if refusal:
                    raise refusal
            if any(member.ready for member in self.members):
                return
            pause = pause_after(attempt, self.pause)
            if time.monotonic() + pause > deadline:
                why = "; ".join(f"{member.server.url}: {member.why}" for member in self.members)
                raise UserError(
                    f"no vLLM server was ready for {self.patience:.0f} s ({why}): expected one that answers, started with the "
                    "flags in the guide; then continue with --resume"
                )
            time.sleep(pause)

    def _prepare(self, member: Member, version: Version) -> UserError | None:
        """Replaces the versions on a server by this one, and checks it. Returns the error if it refuses or fails a check."""
        started = time.monotonic()
        try:
            with member.preparing:
                if self._closed:
                    return UserError("the run has ended: its servers get no further version")
                member.ready = None
                member.server.check_health()
                self.probes.check_server(member.server)
                while member.loaded:
                    member.server.unload(member.loaded[0])
                    member.loaded.pop(0)
                member.loaded.append(version.name)
                member.server.load(version.name, version.path)
                self.probes.check_version(member.server, version)
                member.ready, member.why = version, ""
                log.info("%s has %s after %.1f s", member.server.url, version.name, time.monotonic() - started)
        except UserError as error:
            return error
        except RequestError as error:
            if not member.why:
                log.warning("%s: %s, expected a vLLM server: trying again", member.server.url, error)
            member.why = str(error)
        return None

    def sample(self, prompt: TokenIds, **settings: Any) -> tuple[Reply, str]:
        """A reply of the current version, and the URL of its server. A failed request is repeated on another ready server.

        Raises:
            RequestError: no server is ready.
            UserError: a server refuses the request.
        """
        while True:
            with self._lock:
                ready = [(member, member.ready) for member in self.members if member.ready]
                if not ready:
                    raise RequestError("no vLLM server is ready")
                member, version = min(ready, key=lambda one: one[0].in_flight)
                member.in_flight += 1
            try:
                return member.server.sample(version.name, prompt, **settings), member.server.url
            except RequestError as error:
                self._lose(member, error)
            finally:
                with self._lock:
                    member.in_flight -= 1

    def check(self) -> set[str]:
        """Checks the ready servers again. Returns the URLs of the servers that pass: all their replies come from this version."""
        for member in self.members:
            if version := member.ready:
                try:
                    self.probes.check_version(member.server, version)
                except (RequestError, UserError) as error:
                    self._lose(member, error)
        return {member.server.url for member in self.members if member.ready}

    def _lose(self, member: Member, error: Exception) -> None:
        with self._lock:
            if member.ready:
                log.warning("%s does not respond (%s): repeating its requests", member.server.url, error)
            member.ready, member.why = None, str(error)

    def close(self) -> None:
        """Unloads the adapters from the servers that respond. Other threads end at their next request."""
        self._closed = True
        for member in self.members:
            responds = member.preparing.acquire(timeout=TO_UNLOAD)
            member.ready = None
            if responds:
                with suppress(RequestError, UserError):
                    for name in member.loaded:
                        replace(member.server, timeout=TO_UNLOAD).unload(name)
                member.preparing.release()


_TOKENIZER = Lock()
"""Tokenizers are not thread-safe."""


@dataclass(frozen=True)
class VllmPolicy:
    """Samples on servers; encodes and decodes here. The servers have their own randomness: `rngs` is not used."""

    agent: LanguageModel
    """Supplies tokenizer, chat template, temperature and limits; its weights are not used."""
    pool: VllmPool
    prompt_format: PromptFormat | None
    """The model's prompt format."""
    urls: set[str] = field(default_factory=set)
    """The servers of the replies so far."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt, one after the other."""
        agent, completions = self.agent, []
        for prompt in prompts:
            with _TOKENIZER:
                [prompt_ids] = agent.encode([prompt])
            ends = agent.engine.end_ids
            limits = {"temperature": agent.temperature, "max_new_tokens": agent.max_new_tokens, "end_ids": ends}
            reply, url = self.pool.sample(prompt_ids, **limits)
            self.urls.add(url)
            finish: Finish = "stop" if reply.token_ids[-1] in ends else "length"
            with _TOKENIZER:
                [text] = agent.encoder.decode([(reply.token_ids, finish)])
            completions.append(
                Completion(text=text, finish=finish, prompt_ids=prompt_ids, token_ids=reply.token_ids, log_probs=reply.log_probs)
            )
        return completions
