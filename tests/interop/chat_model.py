"""The model behind a loopback server that several frameworks ask: its reply depends on the messages and the seed alone."""

from __future__ import annotations

import hashlib
import json

from tests.models.openai_server import Answer, Body, actions_of, chat_completion


def reply(body: Body) -> str:
    """Some thoughts and an action, now and then one that the game does not have, or no action at all."""
    asked = [[message["role"], message["content"]] for message in body["messages"]], body["seed"]
    digest = hashlib.sha256(json.dumps(asked).encode()).digest()
    actions = [*actions_of(body["messages"]), "Jump"]
    if digest[1] % 8 == 0:
        return f"<think>{digest.hex()[:6]}</think>I would rather not."
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(finish: str = "stop") -> Answer:
    """A model all of whose replies have one finish reason."""
    return lambda body: chat_completion(reply(body), finish)
