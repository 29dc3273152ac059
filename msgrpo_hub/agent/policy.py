"""Policies: the one-method seam between games and whatever plays them, and the scripted players."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game, base_game, display_name


class Policy(Protocol):
    """Anything that answers prompts."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt; all randomness of reply i comes from `rngs[i]`, so company changes nothing."""


@runtime_checkable
class SupportsCaching(Protocol):
    """A policy that saves work where prompts come up again."""

    def caching(self) -> AbstractContextManager[None]:
        """While it lasts, it answers as ever, and computes no prompt twice."""


Chooser = Callable[[Game, Any, np.random.Generator], str]
"""(game, state, rng) → action."""


@dataclass(frozen=True)
class ScriptedPolicy:
    """A player that looks at the state and always answers in the right format."""

    choose: Chooser

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        actions = [
            display_name(prompt.game, self.choose(base_game(prompt.game), prompt.state, rng))
            for prompt, rng in zip(prompts, rngs, strict=True)
        ]
        return [Completion(text=f"<action>{action}</action>") for action in actions]
