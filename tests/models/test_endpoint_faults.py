"""A server failure never counts as a player's mistake: it has no effect, or becomes an error on one line."""

from __future__ import annotations

import json
import time

import pytest

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.rollout import play_episodes
from tests.models.endpoint_players import EPISODE_KEYS, FAULTS, SNAKE, WithoutHTTP, ask_once, first_prompts, model, player
from tests.models.openai_server import (
    OpenAIServer,
    always,
    at_first,
    chat_completion,
    once,
    send,
)


@pytest.fixture
def faultless() -> list[Episode]:
    return play_episodes(SNAKE, WithoutHTTP(), EPISODE_KEYS)


@pytest.mark.lowest
@pytest.mark.parametrize("name", FAULTS)
def test_a_temporary_fault_changes_nothing(name: str, faultless: list[Episode]) -> None:
    fault, _ = FAULTS[name]
    slow = name == "timeout"
    with OpenAIServer(model(), once(fault) if slow else at_first(fault, 2)) as server:
        episodes = play_episodes(SNAKE, player(server, timeout=1.0 if slow else 20.0), EPISODE_KEYS[:3])
    assert episodes == faultless[:3]
    steps = sum(len(episode.steps) for episode in episodes)
    assert len(server.asked) > steps if slow else len(server.asked) == 3 * steps


@pytest.mark.lowest
@pytest.mark.parametrize("name", FAULTS)
def test_a_permanent_fault_is_an_error_on_one_line_and_not_a_reply(name: str) -> None:
    fault, error = FAULTS[name]
    with OpenAIServer(model(), always(fault)) as server:
        completion = ask_once(player(server, attempts=3, timeout=0.1 if name == "timeout" else 20.0))
    assert (completion.text, completion.usage, len(server.asked)) == ("", None, 3)
    assert completion.error.startswith(error)
    assert " after 3 attempts" in completion.error
    assert completion.error.isprintable()
    assert len(completion.error) < 250


@pytest.mark.lowest
def test_an_episode_without_a_response_stops_unscored_and_the_others_are_unaffected(
    faultless: list[Episode],
) -> None:
    """One of six episodes loses its server at its second turn."""
    failing = stream(*EPISODE_KEYS[2][:1], "sampling", EPISODE_KEYS[2][1]).integers(2**31, size=2)[1]
    with OpenAIServer(model(), always(send(503, b"overloaded"), lambda body: body["seed"] == failing)) as server:
        episodes = play_episodes(SNAKE, player(server, attempts=2), EPISODE_KEYS)
    stopped = episodes.pop(2)
    assert stopped.error == "HTTP 503 after 2 attempts: overloaded"
    assert (stopped.terminated, stopped.truncated, stopped.success) == (False, False, False)
    assert stopped.steps == faultless[2].steps[:1]
    assert episodes == faultless[:2] + faultless[3:]


@pytest.mark.parametrize(
    ("answer", "text", "finish", "status"),
    [
        (chat_completion(""), "", "stop", "unreadable"),
        (chat_completion(None, "eos_token"), "", "stop", "unreadable"),
        (chat_completion("", "length"), "", "length", "truncated_reply"),
        (chat_completion(None, "length"), "", "length", "truncated_reply"),
        (
            chat_completion("", reasoning_content="<action>Up</action>"),
            "<think><action>Up</action></think>",
            "stop",
            "unreadable",
        ),
        (chat_completion(None, "length", reasoning="Now"), "<think>Now", "length", "truncated_reply"),
        (
            chat_completion("", "model_length", reasoning_content="Up? <action>Up"),
            "<think>Up? <action>Up",
            "length",
            "truncated_reply",
        ),
        (
            chat_completion("", reasoning="</think><action>Up</action>"),
            "<think><action>Up</action></think>",
            "stop",
            "unreadable",
        ),
        (
            chat_completion("", reasoning="Up?[/THINK]</seed:think><action>Up</action>"),
            "<think>Up?<action>Up</action></think>",
            "stop",
            "unreadable",
        ),
        (chat_completion("<action>Up</action>", reasoning={"effort": "low"}), "<action>Up</action>", "stop", "ok"),
        (chat_completion([]), "", "stop", "unreadable"),
        (
            chat_completion([{"type": "text", "text": "<action>"}, {"type": "text", "text": "Up</action>"}]),
            "<action>Up</action>",
            "stop",
            "ok",
        ),
        (  # as Mistral has it
            chat_completion(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Down?"}]},
                    {"type": "text", "text": "<action>Up</action>"},
                ]
            ),
            "<think>Down?</think><action>Up</action>",
            "stop",
            "ok",
        ),
        (
            chat_completion([{"type": "thinking", "thinking": [{"type": "text", "text": "<action>Up</action>"}]}], "length"),
            "<think><action>Up</action>",
            "length",
            "truncated_reply",
        ),
        (chat_completion("<action>up</action>", reasoning="Now"), "<think>Now</think><action>up</action>", "stop", "ok"),
        (chat_completion(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), "", "stop", "unreadable"),
        (chat_completion("\x00garbage\ud83d"), "\x00garbage\ud83d", "stop", "unreadable"),
        (chat_completion("<action>Up</action>", "eos_token"), "<action>Up</action>", "stop", "ok"),
    ],
)
def test_the_output_of_the_model_is_a_reply_and_is_requested_once(answer: bytes, text: str, finish: str, status: str) -> None:
    game = make_game("FrozenLake-NotSlippery-v1")
    with OpenAIServer(lambda _body: answer) as server:
        (episode,) = play_episodes(game, player(server), [(0, 0)])
    first = episode.steps[0]
    assert (first.completion.text, first.completion.finish, first.status, episode.error) == (text, finish, status, "")
    assert len(server.asked) == len(episode.steps)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, (12, 3)),
        ({"prompt_tokens": 12}, (None, None)),
        ({"prompt_tokens": "12", "completion_tokens": "3"}, (None, None)),
        (None, (None, None)),
        ([], (None, None)),
    ],
)
def test_token_counts_are_those_of_the_server_or_missing(usage: object, counts: tuple[int | None, int | None]) -> None:
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}
    with OpenAIServer(lambda _body: json.dumps(answer).encode()) as server:
        completion = ask_once(player(server))
    assert (completion.prompt_tokens, completion.reply_tokens, completion.error) == (*counts, "")


def test_a_key_that_no_header_can_hold_is_named_and_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", "sk-abc\u2026def")
    with OpenAIServer(model()) as server, pytest.raises(UserError, match="MSGRPO_ENDPOINT_KEY holds a character that no key has"):
        ask_once(player(server))
    assert not server.asked


@pytest.mark.lowest
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_a_refused_request_is_a_user_error_after_one_request(status: int) -> None:
    with (
        OpenAIServer(model(), always(send(status, b'{"detail": "no\\nsuch thing"}'))) as server,
        pytest.raises(UserError) as error,
    ):
        ask_once(player(server, "some-model"))
    assert len(server.asked) == 1
    message = str(error.value)
    assert message.isprintable()
    assert f"'endpoint:{server.url}#some-model' (HTTP {status} " in message
    assert ("HF_TOKEN" in message) == (status in (401, 403))


def test_a_refused_request_does_not_wait_for_pausing_requests() -> None:
    prompts, rngs = first_prompts(SNAKE, 8)
    refused = int(stream(7, "sampling").integers(2**31))
    pausing = send(503, b"", {"Retry-After": "60"})
    began = time.monotonic()
    with (
        OpenAIServer(model(), lambda body, _: send(401) if body["seed"] == refused else pausing) as server,
        pytest.raises(UserError, match="HTTP 401"),
    ):
        player(server).complete(prompts, rngs)
    assert time.monotonic() - began < 30
