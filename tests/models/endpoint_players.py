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
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game, make_game, stream
from msgrpo_hub.models.endpoint import EndpointPolicy, make_endpoint
from tests.models.openai_server import (
    Answer,
    Body,
    Fault,
    OpenAIServer,
    actions_of,
    break_off,
    chat_completion,
    close,
    hang,
    reset,
    send,
)

SNAKE, LAKE = make_game("Snake-Solo-v1"), make_game("FrozenLake-Slippery-v1")
EPISODE_KEYS = [(seed, member) for seed in (3, 4, 5) for member in (0, 1)]


def thought_of(body: Body, salt: str = "") -> str:
    """The reply of the model behind the test servers: a function of the request and the salt only."""
    digest = hashlib.sha256(json.dumps([body, salt], sort_keys=True).encode()).digest()
    actions = [*actions_of(body["messages"]), "Jump"]  # the last name is not an action
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(salt: str = "", delay: float = 0.0) -> Answer:
    """The model behind a server; a delay that differs between requests brings the replies out of order."""

    def answer(body: Body) -> bytes:
        text = thought_of(body, salt)
        time.sleep(delay * len(set(text)) % 1)
        return chat_completion(text)

    return answer


@dataclass(frozen=True)
class WithoutHTTP:
    """The same model in this process, one prompt after the other."""

    name: str = "m"
    temperature: float = 0.5
    max_tokens: int = 32
    salt: str = ""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        return [self.reply(prompt, int(rng.integers(2**31))) for prompt, rng in zip(prompts, rngs, strict=True)]

    def reply(self, prompt: Prompt, seed: int) -> Completion:
        body = {"model": self.name, "messages": prompt.messages, "seed": seed, "stream": False}
        text = thought_of({**body, "temperature": self.temperature, "max_tokens": self.max_tokens}, self.salt)
        return Completion(text=text, usage=(7, len(text)))


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


FAULTS: dict[str, tuple[Fault, str]] = {
    "429": (send(429, b"slow down", {"Retry-After": "0"}), "HTTP 429 after 3 attempts: slow down"),
    "500": (send(500, b"<html>"), "HTTP 500 after 3 attempts: <html>"),
    "502": (send(502), "HTTP 502 after 3 attempts"),
    "503": (send(503, b'{"error": "over\\nloaded"}'), 'HTTP 503 after 3 attempts: {"error": "over\\nloaded"}'),
    "503 whose body is a JSON list": (send(503, b'[{"error": 1}]'), 'HTTP 503 after 3 attempts: [{"error": 1}]'),
    "503 whose errors are no list": (send(503, b'{"errors": {"message": 1}}'), "HTTP 503 after 3 attempts: {"),
    "503 whose body is no text": (send(503, b'{"\xff\xfe'), "HTTP 503 after 3 attempts: {"),
    "504": (send(504, b"line one\n\n  line two"), "HTTP 504 after 3 attempts: line one line two"),
    "timeout": (hang(3), "no response ("),
    "closed": (close, "no response (RemoteProtocolError) after 3 attempts"),
    "reset": (reset, "no response (ReadError) after 3 attempts"),
    "broken off": (break_off, "no response (RemoteProtocolError) after 3 attempts"),
    "a page": (send(200, b"\n<!DOCTYPE html>\n<p>Welcome</p>"), "no chat completion after 3 attempts: <!DOCTYPE html>"),
    "an event stream": (
        send(200, b'data: {"choices": [{"delta": {"content": "Up"}}]}\n\ndata: [DONE]\n\n'),
        'no chat completion after 3 attempts: data: {"choices": [{"delta": {"content": "Up"}}]}',
    ),
    "an error with 200": (  # of LM Studio, where the URL lacks /v1
        send(200, b'{"error":"Unexpected endpoint or method. (POST /chat/completions)"}'),
        'no chat completion after 3 attempts: {"error":"Unexpected endpoint or method. (POST /chat/completions)"}',
    ),
    "an error on several lines": (
        send(200, b'{\n  "error": {\n    "message": "\x07 no credit"\n  }\n}'),
        "no chat completion after 3 attempts: {",
    ),
    "no text": (send(200, b"\xff\xfe\xfa"), "no chat completion after 3 attempts: "),
    "nothing": (send(200), "no chat completion after 3 attempts: an empty body"),
    "null": (send(200, b"null"), "no chat completion after 3 attempts: null"),
    "a list without end": (send(200, b"[" * 100_000), "no chat completion after 3 attempts: [[["),
    "a list": (send(200, b"[]"), "no chat completion after 3 attempts: []"),
    "no choices": (send(200, b'{"choices": []}'), 'no chat completion after 3 attempts: {"choices": []}'),
    "choices of text": (send(200, b'{"choices": "abc"}'), 'no chat completion after 3 attempts: {"choices": "abc"}'),
    "choices of numbers": (send(200, b'{"choices": [3]}'), 'no chat completion after 3 attempts: {"choices": [3]}'),
    "no message": (send(200, b'{"choices": [{"message": "hi"}]}'), "no chat completion after 3 attempts: {"),
    "content of numbers": (send(200, chat_completion([3])), "no chat completion after 3 attempts: {"),
    "a part of a number": (send(200, chat_completion([{"type": "text", "text": 3}])), "no chat completion after 3 attempts: {"),
    "empty content": (send(200, chat_completion("", "error")), "an empty reply with finish reason error after 3 attempts"),
    "null content": (send(200, chat_completion(None, "")), "an empty reply with finish reason none after 3 attempts"),
    "half a reply": (send(200, chat_completion("<thi", "abort")), "a broken-off reply with finish reason abort after 3 attempts"),
    "a blocked reply": (
        send(200, chat_completion("", "content_filter")),
        "an empty reply with finish reason content_filter",
    ),
}
