"""A model behind HTTP plays as in this process, and a failure of its server never counts as its mistake."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent import Policy, Prompt
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import Game, make_game, stream
from msgrpo_hub.models import endpoint
from msgrpo_hub.models.endpoint import EndpointPolicy, make_endpoint
from msgrpo_hub.models.http_client import in_threads, key_for
from msgrpo_hub.players import PlayerSettings, make_player
from msgrpo_hub.rollout import play_episodes
from tests.models.openai_server import (
    REFUSALS,
    Body,
    Fault,
    OpenAIServer,
    always,
    at_first,
    break_off,
    chat_completion,
    chat_reply,
    close,
    hang,
    is_refused,
    model,
    no_faults,
    refusing,
    send,
)

KEY = "sk-very-secret-0123456789"
SUITE = Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=2)
SNAKE, LAKE = make_game("Snake-Solo-v1"), make_game("FrozenLake-Slippery-v1")
EPISODE_KEYS = [(seed, member) for seed in (3, 4, 5) for member in (0, 1)]


class WithoutHTTP:
    """The model of `openai_server` in this process."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        asked = zip(prompts, rngs, strict=True)
        texts = [chat_reply({"messages": prompt.messages, "seed": int(rng.integers(2**31))}) for prompt, rng in asked]
        return [Completion(text=text, usage=(7, len(text))) for text in texts]


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


# ---- the same play as in this process


@pytest.mark.lowest
@pytest.mark.parametrize("game", [SNAKE, LAKE], ids=lambda game: str(game.id))
def test_a_model_plays_over_http_as_in_this_process(game: Game) -> None:
    with OpenAIServer(model(delay=0.0005)) as server:
        over_http = play_episodes(game, player(server), EPISODE_KEYS)
    assert over_http == play_episodes(game, WithoutHTTP(), EPISODE_KEYS)
    assert {step.status for episode in over_http for step in episode.steps} == {"ok", "unreadable"}


def test_a_request_carries_the_prompt_the_settings_and_its_own_seed() -> None:
    prompts, rngs = first_prompts(SNAKE, 4)
    extra = {"top_k": 20, "top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    with OpenAIServer(model()) as server:
        policy = make_player(f"endpoint:{server.url}#org/some-model@v1", PlayerSettings(**extra, concurrency=1))
        policy.complete(prompts, rngs)
        assert player(server).complete([], []) == []
    bodies = [asked.body for asked in server.asked]
    assert [body["messages"] for body in bodies] == [prompt.messages for prompt in prompts]
    settings = {"model": "org/some-model@v1", "temperature": 0.5, "max_tokens": 256, **extra}
    assert all(body | settings == body for body in bodies)
    assert len({body["seed"] for body in bodies}) == 4


def test_concurrent_requests_reach_the_limit_and_do_not_exceed_it() -> None:
    with OpenAIServer(model(delay=0.004)) as server:
        player(server, concurrency=3).complete(*first_prompts(SNAKE, 24))
    assert server.most_at_once == 3


def test_the_first_error_in_a_thread_ends_all_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: time.sleep(60 * item) or 1 // item, range(8), 8)
    assert time.monotonic() - started < 30
    assert in_threads(str, [3, 1, 2], 2) == ["3", "1", "2"]


# ---- failures


FAULTS: dict[str, tuple[Fault, str]] = {
    "429": (send(429, b"slow down", {"Retry-After": "0"}), "HTTP 429 after 3 attempts: slow down"),
    "503 without text": (send(503, b'{"\xff\xfe'), "HTTP 503 after 3 attempts: {"),
    "504": (send(504, b"line one\n\n  line two"), "HTTP 504 after 3 attempts: line one line two"),
    "timeout": (hang(3), "no response ("),
    "closed": (close, "no response (RemoteProtocolError) after 3 attempts"),
    "broken off": (break_off, "no response (RemoteProtocolError) after 3 attempts"),
    "a page": (send(200, b"\n<!DOCTYPE html>\n<p>Welcome</p>"), "no chat completion after 3 attempts: <!DOCTYPE html>"),
    "an error with 200": (send(200, b'{"error":"Unexpected"}'), 'no chat completion after 3 attempts: {"error": "Unexpected"}'),
    "nothing": (send(200), "no chat completion after 3 attempts: an empty body"),
    "a list without end": (send(200, b"[" * 100_000), "no chat completion after 3 attempts: [[["),
    "no message": (send(200, b'{"choices": [{"message": "hi"}]}'), "no chat completion after 3 attempts: {"),
    "a part of a number": (send(200, chat_completion([{"type": "text", "text": 3}])), "no chat completion after 3 attempts: {"),
    "empty content": (send(200, chat_completion("", "error")), "an empty reply with finish reason error after 3 attempts"),
    "half a reply": (send(200, chat_completion("<thi", "abort")), "a broken-off reply with finish reason abort after 3 attempts"),
}


@pytest.mark.lowest
@pytest.mark.parametrize("name", FAULTS)
def test_a_temporary_fault_changes_nothing_and_a_permanent_one_is_an_error_on_one_line(name: str) -> None:
    (fault, error), slow = FAULTS[name], name == "timeout"
    first = iter([fault])
    with OpenAIServer(model(), (lambda *_: next(first, None)) if slow else at_first(fault, 2)) as server:
        episodes = play_episodes(SNAKE, player(server, timeout=1.0 if slow else 20.0), EPISODE_KEYS[:1])
    assert episodes == play_episodes(SNAKE, WithoutHTTP(), EPISODE_KEYS[:1])
    with OpenAIServer(model(), always(fault)) as server:
        completion = ask_once(player(server, attempts=3, timeout=0.1 if slow else 20.0))
    assert (completion.text, completion.usage, len(server.asked)) == ("", None, 3)
    assert completion.error.startswith(error)
    assert completion.error.isprintable()
    assert len(completion.error) < 250


def test_an_episode_without_a_response_stops_unscored_and_the_others_are_unaffected() -> None:
    """One of six episodes loses its server at its second turn."""
    faultless = play_episodes(SNAKE, WithoutHTTP(), EPISODE_KEYS)
    failing = stream(*EPISODE_KEYS[2][:1], "sampling", EPISODE_KEYS[2][1]).integers(2**31, size=2)[1]
    with OpenAIServer(model(), always(send(503, b"overloaded"), lambda body: body["seed"] == failing)) as server:
        episodes = play_episodes(SNAKE, player(server, attempts=2), EPISODE_KEYS)
    stopped = episodes.pop(2)
    assert stopped.error == "HTTP 503 after 2 attempts: overloaded"
    assert (stopped.terminated, stopped.truncated, stopped.success) == (False, False, False)
    assert stopped.steps == faultless[2].steps[:1]
    assert episodes == faultless[:2] + faultless[3:]


@pytest.mark.lowest
@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_request_is_a_user_error_at_once(status: int) -> None:
    prompts, rngs = first_prompts(SNAKE, 8)
    refused, began = int(stream(7, "sampling").integers(2**31)), time.monotonic()
    answers = {True: send(status, b'{"detail": "no\\nsuch thing"}'), False: send(503, b"", {"Retry-After": "60"})}
    with OpenAIServer(model(), lambda body, _: answers[body["seed"] == refused]) as server, pytest.raises(UserError) as error:
        player(server).complete(prompts, rngs)
    message = str(error.value)
    assert message.isprintable()
    assert f"'endpoint:{server.url}#m' (HTTP {status} no such thing)" in message
    assert ("HF_TOKEN" in message) == (status == 401)
    assert time.monotonic() - began < 30


def thinking(*parts: Any) -> list[dict[str, Any]]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]} for text in parts]


UP = "<action>Up</action>"
REPLIES: list[tuple[bytes, str, str, str]] = [
    (chat_completion(None, "eos_token"), "", "stop", "unreadable"),
    (chat_completion("", "length"), "", "length", "truncated_reply"),
    (chat_completion("", reasoning_content=UP), f"<think>{UP}</think>", "stop", "unreadable"),
    (chat_completion(None, "length", reasoning="Now"), "<think>Now", "length", "truncated_reply"),
    (chat_completion("", reasoning=f"Up?[/THINK]</seed:think>{UP}"), f"<think>Up?{UP}</think>", "stop", "unreadable"),
    (chat_completion(UP, reasoning={"effort": "low"}), UP, "stop", "ok"),
    (chat_completion("<action>up</action>", reasoning="Now"), "<think>Now</think><action>up</action>", "stop", "ok"),
    (chat_completion([*thinking("Down?"), {"type": "text", "text": UP}]), f"<think>Down?</think>{UP}", "stop", "ok"),
    (chat_completion(thinking(UP), "length"), f"<think>{UP}", "length", "truncated_reply"),
    (chat_completion(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), "", "stop", "unreadable"),
    (chat_completion("\x00garbage\ud83d"), "\x00garbage\ud83d", "stop", "unreadable"),
]


@pytest.mark.parametrize(("answer", "text", "finish", "status"), REPLIES)
def test_the_output_of_the_model_is_a_reply_and_is_requested_once(answer: bytes, text: str, finish: str, status: str) -> None:
    game = make_game("FrozenLake-NotSlippery-v1")
    with OpenAIServer(lambda _body: answer) as server:
        (episode,) = play_episodes(game, player(server), [(0, 0)])
    first = episode.steps[0]
    assert (first.completion.text, first.completion.finish, first.status, episode.error) == (text, finish, status, "")
    assert len(server.asked) == len(episode.steps)


# ---- waiting


def test_a_retry_waits_as_long_as_the_server_asks(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(model(), at_first(send(429, b"", {"Retry-After": "1"}))) as server:
        assert ask_once(player(server)).error == ""
    first, second = (asked.at for asked in server.asked)
    assert second - first > 0.9
    for header in ("soon", "-5", "nan", "Wed, 21 Oct 2999 07:28:00 GMT"):
        with OpenAIServer(model(), at_first(send(429, b"", {"Retry-After": header}))) as server:
            assert ask_once(player(server)).error == ""
    assert not caplog.messages


@pytest.mark.parametrize("header", ["3600", "inf"])
def test_a_server_that_asks_for_too_long_a_wait_is_not_asked_again(header: str) -> None:
    with OpenAIServer(model(), always(send(503, b"quota spent", {"Retry-After": header}))) as server:
        assert ask_once(player(server)).error == f"HTTP 503 after 1 attempt (the server asked to wait {header} s): quota spent"


# ---- parts of a request that a server refuses


def answer(_: Body) -> bytes:
    return chat_completion("<action>Up</action>")


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_part_is_sent_once_and_then_left_out(name: str, caplog: pytest.LogCaptureFixture) -> None:
    (prompts, rngs), what = first_prompts(LAKE, 3), REFUSALS[name][0]
    with OpenAIServer(answer, refusing(name)) as server:
        policy = player(server, concurrency=1)
        replies = policy.complete(prompts, rngs)
    assert {(reply.text, reply.error) for reply in replies} == {("<action>Up</action>", "")}
    first, *others = [asked.body for asked in server.asked]
    assert [is_refused(what, body) for body in (first, *others)] == [True, False, False, False]
    assert all(body.keys() >= {"max_tokens", "seed", "temperature"} - {what} for body in others)
    if what == "max_tokens":
        assert {body["max_completion_tokens"] for body in others} == {32}
    if what == "system role":
        content = f"{prompts[0].system}\n\n{prompts[0].user}"
        assert others[0]["messages"] == [{"role": "user", "content": content}]
    assert [message.partition(": ")[0] for message in caplog.messages] == [f"{policy.name} refuses {what}"]


def test_refusals_are_in_the_identity_and_results_are_kept_apart(tmp_path: Path) -> None:
    with OpenAIServer(answer, refusing("OpenAI, max_tokens", "OpenAI, system role")) as server:
        name = f"endpoint:{server.url}#m"
        [strict] = evaluate(name, SUITE, tmp_path)
        turns = sum(len(episode.steps) for episode in strict.episodes)
        assert len(server.asked) == 3 + turns  # the question, refused twice and answered
        server.faults = no_faults
        [lenient] = evaluate(name, SUITE, tmp_path)
        [other] = evaluate(name, SUITE, tmp_path, settings=PlayerSettings(extra_body={"reasoning_effort": "low"}))
    assert len({result.folder for result in (strict, lenient, other)}) == 3
    assert strict.config["identity"] == lenient.config["identity"] | {"refused": ["max_tokens", "system role"]}
    assert other.config["identity"] == lenient.config["identity"] | {"extra_body": {"reasoning_effort": "low"}}


def test_a_server_that_refuses_more_in_the_middle_of_a_run_ends_it(tmp_path: Path) -> None:
    asked: list[Body] = []

    def changes(body: Body, before: int) -> Fault | None:
        asked.append(body)
        return refusing("Gemini, seed")(body, before) if len(asked) > 3 else None

    with OpenAIServer(answer, changes) as server:
        name = f"endpoint:{server.url}#m"
        with pytest.raises(UserError, match=r"Unknown name .*seed.*: check .*, then run the same command again"):
            evaluate(name, SUITE, tmp_path, settings=PlayerSettings(concurrency=1))
        [result] = evaluate(name, SUITE, tmp_path)
    assert result.config["identity"]["refused"] == ["seed"]
    assert result.complete


@pytest.mark.parametrize(
    ("message", "requests"),
    [
        ("'max_tokens' or 'max_completion_tokens' is too large: 32. This model's maximum context", 2),
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", 1),
    ],
)
def test_a_refusal_that_no_change_cures_is_an_error_and_changes_nothing(message: str, requests: int) -> None:
    with OpenAIServer(answer, always(send(400, json.dumps({"error": {"message": message}}).encode()))) as server:
        policy = player(server)
        with pytest.raises(UserError, match="HTTP 400"):
            ask_once(policy)
        assert len(server.asked) == requests
        server.faults = no_faults
        assert ask_once(policy).error == ""
    assert server.asked[-1].body["max_tokens"] == 32


# ---- names and keys


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h:8000/", "http://h:8000/v1/chat/completions"),
        ("http://h/proxy/v1?key=k", "http://h/proxy/v1/chat/completions?key=k"),
        ("https://h/openai/chat/completions?api-version=1", "https://h/openai/chat/completions?api-version=1"),
    ],
)
def test_the_route_of_chats_is_added_to_a_url_that_does_not_have_it(url: str, asked: str) -> None:
    assert make_endpoint(f"endpoint:{url}#m", temperature=0.5, max_new_tokens=32).url == asked


@pytest.mark.parametrize(
    "name",
    [
        *("pocket", "endpoint:http://localhost:8000/v1", "endpoint:localhost:8000/v1#m", "endpoint:http://localhost:99999/v1#m"),
        *("provider:together", "provider:together/", "provider:/org/model", "endpoint:ftp://me:pass@host/v1?key=pass#m"),
    ],
)
def test_a_malformed_name_is_a_user_error_without_its_secrets(name: str) -> None:
    with pytest.raises(UserError, match=r"^cannot parse the player '.*': expected endpoint:URL#MODEL, e.g. ") as error:
        make_endpoint(name, temperature=1.0, max_new_tokens=8)
    assert "pass" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://router.huggingface.co/v1", "hf_secret"),
        ("https://abc.eu-west-1.aws.endpoints.huggingface.cloud", "hf_secret"),
        ("http://router.huggingface.co/v1", KEY),
        ("https://huggingface.co.example.org/v1", KEY),
        ("https://nothuggingface.co/v1", KEY),
    ],
)
def test_the_hugging_face_token_goes_to_hugging_face_only(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", f" {KEY}\n")
    assert key_for(url) == key


def test_a_provider_plays_as_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the address of the router is changed, to this machine. The model's name there contains the provider."""
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", KEY)
    for name, sent in (("provider:together/org/model", "org/model:together"), ("provider:auto/org/model", "org/model")):
        with OpenAIServer(model(), at_first(send(502))) as server:
            policy = make_endpoint(name, temperature=0.5, max_new_tokens=32)
            policy = replace(policy, url=f"{server.url}/chat/completions", backoff=0.002)
            assert play_episodes(SNAKE, policy, EPISODE_KEYS) == play_episodes(SNAKE, WithoutHTTP(), EPISODE_KEYS)
        assert {asked.body["model"] for asked in server.asked} == {sent}
    monkeypatch.setattr(endpoint, "key_for", lambda _: "")
    with pytest.raises(UserError, match="cannot play 'provider:auto/org/model': no Hugging Face token found"):
        ask_once(policy)


def test_keys_and_secrets_of_a_url_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("me-myself", "open sesame", "tell-nobody")

    def quotes_all(handler: BaseHTTPRequestHandler) -> None:
        send(503, f"{handler.path} {handler.headers['Authorization']} {' '.join(secrets)}".encode())(handler)

    with OpenAIServer(model(), always(quotes_all)) as server:
        url = server.url.replace("//", "//me-myself:open%20sesame@")
        policy = replace(make_endpoint(f"endpoint:{url}?key=tell-nobody#m", temperature=0.5, max_new_tokens=32), attempts=1)
        assert policy.name == f"endpoint:{server.url}#m"
        shown = [repr(policy), ask_once(policy).error]
        monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", KEY)
        shown.append(ask_once(player(server, attempts=1)).error)
    assert {asked.query for asked in server.asked} == {"key=tell-nobody", ""}
    assert server.asked[0].key.startswith("Basic ")
    assert server.asked[1].key == f"Bearer {KEY}"
    assert "Basic ***" in shown[1]
    assert "Bearer *** " in shown[2]
    assert not [(secret, text) for secret in secrets for text in shown[:2] if secret in text]


def test_a_key_that_no_header_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", "sk-abc\u2026def")
    with pytest.raises(UserError, match="MSGRPO_ENDPOINT_KEY holds a character"):
        key_for("http://localhost:8000/v1")


def test_offline_only_servers_on_this_machine_are_asked_and_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with OpenAIServer(model()) as other, OpenAIServer(model()) as server:
        assert ask_once(player(server)).error == ""
        server.faults = always(send(308, b"", {"Location": f"{other.url}/chat/completions"}))
        with pytest.raises(UserError, match="HTTP 308"):
            ask_once(player(server))
        assert not other.asked
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids requests to localhost"):
        ask_once(make_endpoint("endpoint:http://localhost.example.org/v1#m", temperature=0.5, max_new_tokens=32))
