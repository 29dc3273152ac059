"""Suites and players for tests, and the files that their runs leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.players.registry import Player

FOLDER = Path(__file__).parents[2] / "benchmark" / "suites"
FIRM, SLIPPERY, SHORT = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Short-v1"
LAKE = Suite(name="mine", tasks=(SLIPPERY,), episodes=12)
MIXED = Suite(name="mixed", tasks=(SLIPPERY, SHORT, f"{SHORT}:rotated"), episodes=9)
FINAL = {"config.lock.json", "episodes.parquet", "steps.parquet", "results.json"}


def error(rate: float, repeats: int) -> float:
    """Four standard errors of a simulated rate."""
    return 4 * math.sqrt(rate * (1 - rate) / repeats)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of every run."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Talker:
    """A random player with odd words around its actions; if its server is down, some episodes fail."""

    down: bool = False
    asked: int = 0
    """The number of episodes that it started."""
    said: list[tuple[str, Completion]] = field(default_factory=list)

    WORDS = ("", "so\n\r\u2028", "é—雪🐍", "\x00\x1b[0m", '"}\\', "<think>hm</think>", "half \ud800 a pair")

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.asked += sum(prompt.state.turn == 0 for prompt in prompts)
        return [self.reply(prompt, rng) for prompt, rng in zip(prompts, rngs, strict=True)]

    def reply(self, prompt: Prompt, rng: np.random.Generator) -> Completion:
        word, action = (str(rng.choice(options)) for options in (range(7), prompt.game.actions))
        if self.down and prompt.state.turn == 2 and sum(map(sum, prompt.state.holes)) % 2:
            return Completion(text="", error="HTTP 503 after 6 attempts")
        text = self.WORDS[int(word)] + ("" if rng.random() < 0.2 else f"<action>{action}</action>")
        reply = Completion(text=text, finish="length" if rng.random() < 0.1 else "stop", usage=(len(prompt.user), len(text)))
        self.said.append((prompt.observation, reply))
        return reply


def talker(policy: Any) -> Player:
    return Player(name="talker", policy=policy, identity={"kind": "test", "player": "talker"}, folder="talker/v1")


class Counted(ScriptedPolicy):
    """A scripted player with the numbers of tokens of a model."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        return [replace(reply, usage=(40, 8), near_draws=0) for reply in super().complete(prompts, rngs)]


class Silent:
    """Fails if it is called."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        raise AssertionError("a finished episode was played again")
