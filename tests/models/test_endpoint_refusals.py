"""What a server refuses is left out of the requests, asked once, remembered and recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.models.chat_server import TOKENS_WANTED
from msgrpo_hub.players.settings import PlayerSettings
from tests.models.endpoint_players import LAKE, SNAKE, ask_once, first_prompts, player
from tests.models.openai_server import (
    REFUSALS,
    Body,
    Fault,
    OpenAIServer,
    Refusal,
    always,
    chat_completion,
    no_faults,
    send,
)

SUITE = Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=2)


def answer(_: Body) -> bytes:
    return chat_completion("<action>Up</action>")


def both(first: Refusal, second: Refusal) -> Any:
    return lambda body, before: first.faults(body, before) or second.faults(body, before)


@pytest.mark.lowest
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_what_a_server_refuses_is_asked_once_and_then_left_out(refusal: Refusal, caplog: pytest.LogCaptureFixture) -> None:
    prompts, rngs = first_prompts(SNAKE, 3)
    with OpenAIServer(answer, refusal.faults, owner="vllm") as server:
        policy = player(server, concurrency=1)
        replies = policy.complete(prompts, rngs)
    assert {(reply.text, reply.error) for reply in replies} == {("<action>Up</action>", "")}
    first, *others = [asked.body for asked in server.asked]
    assert len(others) == len(prompts)
    assert refusal.where(first)
    assert not any(refusal.where(body) for body in others)
    kept = {"max_tokens", "seed", *TOKENS_WANTED} - {refusal.name}
    kept -= TOKENS_WANTED.keys() if refusal.name == "logprobs" else set()
    assert all(body.keys() >= kept and body["temperature"] == 0.5 for body in others)
    limit = "max_completion_tokens" if refusal.name == "max_tokens" else "max_tokens"
    assert {body[limit] for body in others} == {32}
    assert [line for line in caplog.messages if "refuses" in line] == [caplog.messages[-1]]
    assert caplog.messages[-1].startswith(f"{policy.server.name} refuses {refusal.name}: ")


def test_without_a_system_role_the_rules_precede_the_observation() -> None:
    [prompt], rngs = first_prompts(LAKE, 1)
    with OpenAIServer(answer, REFUSALS["vLLM, system role"].faults) as server:
        player(server).complete([prompt], rngs)
    [system, user] = prompt.messages
    assert server.asked[-1].body["messages"] == [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}]


def test_a_server_may_refuse_several_things() -> None:
    faults = both(REFUSALS["OpenAI, max_tokens"], REFUSALS["OpenAI, system role"])
    with OpenAIServer(answer, faults) as server:
        policy = player(server)
        assert [ask_once(policy).error for _ in range(2)] == ["", ""]
        assert policy.refusals() == ["max_tokens", "system role"]
    assert len(server.asked) == 5  # two refused, two replies, and the question


@pytest.mark.parametrize(
    ("body", "requests"),
    [
        ({"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 32. This model's maximum context"}}, 2),
        ({"detail": [{"loc": ["body", "temperature"], "msg": "too low", "input": {"seed": 1, "max_tokens": 3}}]}, 1),
        ({"error": {"message": "Unsupported value: 'temperature' does not support 0.5 with this model."}}, 1),
    ],
)
def test_a_refusal_that_no_change_cures_is_an_error_and_changes_nothing(body: dict[str, Any], requests: int) -> None:
    with OpenAIServer(answer, always(send(400, json.dumps(body).encode()))) as server:
        policy = player(server)
        with pytest.raises(UserError, match="HTTP 400"):
            ask_once(policy)
        assert len(server.asked) == requests
        server.faults = no_faults
        assert ask_once(policy).error == ""
        assert policy.refusals() == []
    assert server.asked[-1].body["max_tokens"] == 32


def test_what_a_server_refuses_is_in_the_identity_and_results_are_kept_apart(tmp_path: Path) -> None:
    with OpenAIServer(answer, REFUSALS["OpenAI, max_tokens"].faults) as server:
        name = f"endpoint:{server.url}#m"
        [strict] = evaluate(name, SUITE, tmp_path)
        turns = sum(len(episode.steps) for episode in strict.episodes)
        assert len(server.asked) == 2 + turns  # the question, refused and answered
        [again] = evaluate(name, SUITE, tmp_path)
        assert len(server.asked) == 4 + turns  # the question of the second call
        server.faults = no_faults
        [lenient] = evaluate(name, SUITE, tmp_path)
        asked = len(server.asked)
        assert evaluate(name, SUITE, tmp_path)[0].folder == lenient.folder
        assert len(server.asked) == asked  # a complete run of a server that refuses nothing
    assert again.folder == strict.folder != lenient.folder
    assert strict.config["identity"] == lenient.config["identity"] | {"refused": ["max_tokens"]}
    assert strict.complete
    assert lenient.complete


def test_a_server_that_refuses_more_in_the_middle_of_a_run_ends_it(tmp_path: Path) -> None:
    asked: list[Body] = []

    def changes(body: Body, before: int) -> Fault | None:
        asked.append(body)
        return REFUSALS["Gemini, seed"].faults(body, before) if len(asked) > 3 else None

    with OpenAIServer(answer, changes) as server:
        name = f"endpoint:{server.url}#m"
        with pytest.raises(UserError, match=r"Unknown name .*seed.*: check .*, then run the same command again"):
            evaluate(name, SUITE, tmp_path, settings=PlayerSettings(concurrency=1))
        [result] = evaluate(name, SUITE, tmp_path)
    assert result.config["identity"]["refused"] == ["seed"]
    assert result.complete


def test_a_server_that_fails_when_it_is_asked_what_it_refuses_is_played_as_before(tmp_path: Path) -> None:
    first = iter([send(503, b"starting")])
    with OpenAIServer(answer, lambda _body, _before: next(first, None)) as server:
        [result] = evaluate(f"endpoint:{server.url}#m", SUITE, tmp_path)
    assert result.complete
    assert "refused" not in result.config["identity"]


def test_further_fields_are_in_every_request_and_in_the_identity(tmp_path: Path) -> None:
    low = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
    with OpenAIServer(answer) as server:
        name = f"endpoint:{server.url}#m"
        [plain] = evaluate(name, SUITE, tmp_path)
        server.asked.clear()
        [result] = evaluate(name, SUITE, tmp_path, settings=PlayerSettings(extra_body=low))
    assert all(asked.body | low == asked.body for asked in server.asked)
    assert result.config["identity"] == plain.config["identity"] | {"extra_body": low}
    assert result.folder != plain.folder


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"temperature": 1}, "extra_body has 'temperature', which msgrpo sets: expected other fields"),
        ({"model": "other"}, "extra_body has 'model', which msgrpo sets: expected other fields"),
        ({"penalty": float("nan")}, "extra_body holds what no request can"),
        ({"stop": "\ud800"}, "extra_body holds what no request can"),
        ({"stop": {1}}, "extra_body holds what no request can"),
    ],
)
def test_further_fields_that_cannot_be_sent_are_refused(extra: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        PlayerSettings(extra_body=extra)
