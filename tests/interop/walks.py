"""Environments in this process with the faults of real ones: few sessions, lost connections, no seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from msgrpo_hub.interop.openenv_game import OpenEnvGame

LENGTH = 6
GAME: dict[str, Any] = {
    "actions_sent": {"Left": {"by": -1}, "Right": {"by": 1}},
    "horizon": 8,
    "instructions": "Walk to the right end.",
    "reward_range": (0.0, 1.0),
    "return_range": (0.0, 1.0),
}


@dataclass
class Server:
    """A walk of six cells: the seed gives the start, and the member when a step slips."""

    capacity: int = 64
    loses_every: int = 0
    """A session is lost at every so-many-th step of the server; 0 is never."""
    seeded: bool = True
    repeatable: bool = True
    open: list[Walk] = field(default_factory=list)
    steps: int = 0
    resets: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0
    """The most sessions that were open at once."""

    def connect(self, url: str) -> Walk:
        assert url == "http://walk"
        walk = Walk(self)
        self.open.append(walk)
        return walk

    def game(self, **changes: Any) -> OpenEnvGame:
        return OpenEnvGame("Walk-v1", "http://walk", connect=self.connect, **GAME | changes)


@dataclass(eq=False)
class Walk:
    """One session."""

    server: Server
    cell: int = 0
    chance: np.random.Generator = field(default_factory=np.random.default_rng)

    def reset(self, **start: Any) -> Any:
        server = self.server
        if self not in server.open:
            raise ConnectionError
        if server.open.index(self) >= server.capacity:
            raise RuntimeError("CAPACITY_REACHED")
        server.most = max(server.most, len(server.open))
        server.resets.append(start)
        self.cell = int(np.random.default_rng(start["seed"] if server.seeded else None).integers(1, LENGTH - 1))
        self.chance = np.random.default_rng([start["seed"], start.get("member", 0)] if server.repeatable else None)
        return self._shown(0.0)

    def step(self, action: Mapping[str, Any]) -> Any:
        self.server.steps += 1
        if self.server.loses_every and self.server.steps % self.server.loses_every == 0:
            self.server.open.remove(self)
        if self not in self.server.open:
            raise ConnectionError
        slips = self.chance.random() < 0.3
        self.cell = max(self.cell + (0 if slips else action["by"]), 0)
        return self._shown(float(self.cell == LENGTH - 1))

    def close(self) -> None:
        if self in self.server.open:
            self.server.open.remove(self)

    def _shown(self, reward: float) -> Any:
        return SimpleNamespace(observation={"cell": self.cell, "of": LENGTH}, reward=reward, done=bool(reward))
