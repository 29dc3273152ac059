"""Players for tests of other frameworks."""

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
    """Samples an action and a text with it; some texts cannot be parsed."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            action = prompt.game.actions[rng.integers(len(prompt.game.actions))]
            form = TEXTS[rng.choice(len(TEXTS), p=[0.5, 0.3, 0.05, 0.05, 0.05, 0.05])]
            replies.append(Completion(text=form.format(action)))
        return replies


class Stops(Mixed):
    def __init__(self, turn: int, error: BaseException) -> None:
        self.left, self.error = turn, error

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.left -= 1
        if not self.left:
            raise self.error
        return super().complete(prompts, rngs)
