"""A player for tests of other frameworks' loops: legal moves, walls, words that cannot be read, and silence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msgrpo_hub.agent import Prompt
from msgrpo_hub.episode import Completion

TEXTS = (
    "<think>Perhaps.</think><action>{}</action>",
    "<action> {} </action>",
    "I go {}.",
    "",
    "<think>{}",
    "<action>Jump</action>",
)


class Mixed:
    """Draws an action and how it is said."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        return [self._reply(prompt, rng) for prompt, rng in zip(prompts, rngs, strict=True)]

    def _reply(self, prompt: Prompt, rng: np.random.Generator) -> Completion:
        action = prompt.game.actions[rng.integers(len(prompt.game.actions))]
        form = TEXTS[rng.choice(len(TEXTS), p=[0.5, 0.3, 0.05, 0.05, 0.05, 0.05])]
        return Completion(text=form.format(action))
