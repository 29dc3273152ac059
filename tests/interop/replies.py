"""Players for tests of other frameworks: one in this process, and one model behind a loopback server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from msgrpo_hub.agent import Prompt
from msgrpo_hub.episode import Completion
from tests.models.openai_server import Answer, Body, actions_of, chat_completion

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
    """Raises an error on a turn."""

    def __init__(self, turn: int, error: BaseException) -> None:
        self.left, self.error = turn, error

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.left -= 1
        if not self.left:
            raise self.error
        return super().complete(prompts, rngs)


def chat_reply(body: Body) -> str:
    """Thoughts and an action, as a function of the messages and the seed. The action may be missing or unknown to the game."""
    asked = [[message["role"], message["content"]] for message in body["messages"]], body["seed"]
    digest = hashlib.sha256(json.dumps(asked).encode()).digest()
    actions = [*actions_of(body["messages"]), "Jump"]
    if digest[1] % 8 == 0:
        return f"<think>{digest.hex()[:6]}</think>I would rather not."
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(finish: str = "stop") -> Answer:
    """A model whose replies all have one finish reason."""
    return lambda body: chat_completion(chat_reply(body), finish)
