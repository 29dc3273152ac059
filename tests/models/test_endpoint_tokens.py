"""Replies over HTTP keep their token ids and log-probabilities where a server returns them."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from msgrpo_hub.episode import Completion
from msgrpo_hub.models.chat_server import ChatServer
from msgrpo_hub.models.served_tokens import returns_tokens
from tests.models.endpoint_players import ask_once, player
from tests.models.openai_server import OpenAIServer, chat_completion, send

LOG_PROBS = [-0.5, -1, 0.0]


def with_tokens(body: dict[str, Any]) -> bytes:
    """A response as vLLM writes it: token ids and log-probabilities if they are asked for, otherwise nulls."""
    answer = json.loads(chat_completion("<action>Up</action>"))
    choice, asked = answer["choices"][0], body.get("return_token_ids")
    answer["prompt_token_ids"], choice["token_ids"] = ([5, 6, 7], [8, 9, 2]) if asked else (None, None)
    choice["logprobs"] = None
    if body.get("logprobs"):
        tokens = [{"token": "t", "logprob": value, "bytes": None, "top_logprobs": []} for value in LOG_PROBS]
        choice["logprobs"] = {"content": tokens}
    return json.dumps(answer).encode()


def reply_of(
    owner: str, answer: Callable[[dict[str, Any]], bytes] = with_tokens, **settings: Any
) -> tuple[Completion, dict[str, Any]]:
    """A reply, and the request for it."""
    with OpenAIServer(answer, owner=owner) as server:
        reply = ask_once(player(server, **settings))
    return reply, server.asked[0].body


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reply_of_vllm_keeps_token_ids_and_log_probs(temperature: float) -> None:
    reply, body = reply_of("vllm", temperature=temperature)
    assert (body["return_token_ids"], body["logprobs"]) == (True, True)
    assert (reply.prompt_ids, reply.token_ids, reply.log_probs) == ((5, 6, 7), (8, 9, 2), (-0.5, -1.0, 0.0))
    assert (reply.text, reply.error) == ("<action>Up</action>", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.5},
        {"temperature": 1.0, "extra_body": {"top_p": 0.9}},
        {"temperature": 1.0, "extra_body": {"repetition_penalty": 1.1}},
    ],
)
def test_log_probs_that_may_be_of_another_distribution_are_left_out(settings: dict[str, Any]) -> None:
    reply, _ = reply_of("vllm", **settings)
    assert (reply.prompt_ids, reply.token_ids, reply.log_probs) == ((5, 6, 7), (8, 9, 2), ())


@pytest.mark.parametrize("owner", ["", "openai"])
def test_a_server_that_is_not_vllm_is_not_asked_for_tokens(owner: str) -> None:
    reply, body = reply_of(owner, temperature=1.0)
    assert not {"return_token_ids", "logprobs"} & {*body}
    assert (reply.token_ids, reply.text) == ((), "<action>Up</action>")


@pytest.mark.parametrize("ids", [None, "8 9", [8, "9"], [8, -1], [8, True], {"8": 9}, []])
def test_token_ids_that_are_none_are_left_out(ids: object) -> None:
    def answer(body: dict[str, Any]) -> bytes:
        values = json.loads(with_tokens(body))
        values["choices"][0]["token_ids"] = ids
        return json.dumps(values).encode()

    reply, _ = reply_of("vllm", answer, temperature=1.0)
    assert (reply.prompt_ids, reply.token_ids, reply.log_probs, reply.text) == ((), (), (), "<action>Up</action>")


def test_a_server_that_does_not_say_what_it_is_is_asked_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = iter([None, True]), [0]

    def returns_tokens(*_: object, **__: object) -> bool | None:
        asked[0] += 1
        return next(answers)

    clock = [1000.0]
    monkeypatch.setattr("msgrpo_hub.models.chat_server.returns_tokens", returns_tokens)
    monkeypatch.setattr("msgrpo_hub.models.chat_server.time.monotonic", lambda: clock[0])
    server = ChatServer(name="m", model="m", base_url="http://localhost:1/v1")
    assert [server._may_return_tokens({}, proxies=False) for _ in range(3)] == [False] * 3
    assert asked == [1]
    clock[0] += 61
    assert [server._may_return_tokens({}, proxies=False) for _ in range(3)] == [True] * 3
    assert asked == [2]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_starting_says_nothing_of_what_it_returns(status: int) -> None:
    class Starting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            send(status, b'{"error": "starting"}')(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Starting) as server:
        Thread(target=server.handle_request, daemon=True).start()
        assert returns_tokens(f"http://127.0.0.1:{server.server_port}/v1/models", {}, proxies=False) is None


def test_what_a_server_offers_is_not_what_an_earlier_one_at_its_address_did() -> None:
    with OpenAIServer(with_tokens, owner="vllm") as server:
        before = ask_once(player(server, temperature=1.0))
        server.owner = "openai"  # as when another program is started at the same port
        after = ask_once(player(server, temperature=1.0))
    assert (before.token_ids, after.token_ids) == ((8, 9, 2), ())
