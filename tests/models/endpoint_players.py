"""A model that gives the same replies over HTTP and in this process, and its players."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msgrpo_hub.agent import Policy, Prompt
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game, make_game, stream
from msgrpo_hub.models.endpoint import EndpointPolicy, make_endpoint
from tests.models.openai_server import Answer, Body, OpenAIServer, actions_of, chat_completion

SNAKE, LAKE = make_game("Snake-Solo-v1"), make_game("FrozenLake-Slippery-v1")
EPISODE_KEYS = [(seed, member) for seed in (3, 4, 5) for member in (0, 1)]


def thought_of(body: Body) -> str:
    """The reply of the model behind the test servers: a function of the request."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    actions = [*actions_of(body["messages"]), "Jump"]  # the last name is not an action
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(delay: float = 0.0) -> Answer:
    """The model behind a server; delays differ between requests, so replies arrive out of order."""

    def answer(body: Body) -> bytes:
        text = thought_of(body)
        time.sleep(delay * len(set(text)) % 1)
        return chat_completion(text)

    return answer


@dataclass(frozen=True)
class WithoutHTTP:
    """The same model in this process."""

    name: str = "m"

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        completions = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            settings = {"temperature": 0.5, "max_tokens": 32, "stream": False, "seed": int(rng.integers(2**31))}
            text = thought_of({"model": self.name, "messages": prompt.messages, **settings})
            completions.append(Completion(text=text, usage=(7, len(text))))
        return completions


def player(server: OpenAIServer, name: str = "m", **settings: Any) -> EndpointPolicy:
    """The policy of `make_endpoint`, with pauses of milliseconds."""
    policy = make_endpoint(f"endpoint:{server.url}#{name}", temperature=0.5, max_new_tokens=32)
    return replace(policy, **{"backoff": 0.002, "timeout": 20.0, **settings})


def first_prompts(game: Game, count: int) -> tuple[list[Prompt], list[np.random.Generator]]:
    states = [game.initial_state(stream(seed, "initial_state")) for seed in range(count)]
    return [build_prompt(game, state) for state in states], [stream(seed, "sampling") for seed in range(count)]


def ask_once(policy: Policy) -> Completion:
    (completion,) = policy.complete(*first_prompts(SNAKE, 1))
    return completion
