"""Players over HTTP: they play as they would without it, and a failure of a server is never a player's mistake."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
from huggingface_hub.inference._providers import PROVIDERS

from msgrpo_hub.agent import Policy, Prompt
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, make_game, stream
from msgrpo_hub.models.endpoint import EndpointPolicy, make_endpoint
from msgrpo_hub.pocket import __file__ as pocket_init
from msgrpo_hub.rollout import play_episodes
from tests.models.openai_server import (
    Answer,
    Body,
    Fault,
    OpenAIServer,
    actions_of,
    always,
    at_first,
    break_off,
    chat_completion,
    close,
    echo_key,
    forward_to,
    hang,
    once,
    reset,
    send,
)

SNAKE, LAKE = make_game("Snake-Solo-v1"), make_game("FrozenLake-Slippery-v1")
SEATS = [(seed, member) for seed in (3, 4, 5) for member in (0, 1)]
KEY = "sk-very-secret-0123456789"


def thought_of(body: Body, salt: str = "") -> str:
    """What the model behind our servers says: a function of all that a request carries, and of nothing else."""
    digest = hashlib.sha256(json.dumps([body, salt], sort_keys=True).encode()).digest()
    actions = [*actions_of(body["messages"]), "Jump"]  # now and then it names none that there is
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(salt: str = "", delay: float = 0.0) -> Answer:
    """The model behind a server; a delay, different for each request, brings the replies out of order."""

    def answer(body: Body) -> bytes:
        text = thought_of(body, salt)
        time.sleep(delay * len(set(text)) % 1)
        return chat_completion(text)

    return answer


@dataclass(frozen=True)
class WithoutHTTP:
    """The same model, asked in this process, one prompt after the other."""

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
    """As `make_endpoint` makes it, with pauses of milliseconds."""
    policy = make_endpoint(f"endpoint:{server.url}#{name}", temperature=0.5, max_new_tokens=32)
    return replace(policy, **{"backoff": 0.002, "timeout": 20.0, **settings})


def first_prompts(game: Game, count: int) -> tuple[list[Prompt], list[np.random.Generator]]:
    states = [game.initial_state(stream(seed, "initial_state")) for seed in range(count)]
    return [build_prompt(game, state) for state in states], [stream(seed, "sampling") for seed in range(count)]


def ask_once(policy: Policy) -> Completion:
    (completion,) = policy.complete(*first_prompts(SNAKE, 1))
    return completion


@pytest.fixture
def faultless() -> list[Episode]:
    return play_episodes(SNAKE, WithoutHTTP(), SEATS)


@pytest.mark.lowest
@pytest.mark.parametrize("game", [SNAKE, LAKE], ids=lambda game: str(game.id))
def test_a_model_plays_over_http_as_it_plays_without(game: Game) -> None:
    """Records are equal field by field: text, order, seeds, token counts, actions, rewards."""
    with OpenAIServer(model(delay=0.0005)) as server:
        over_http = play_episodes(game, player(server), SEATS)
    assert over_http == play_episodes(game, WithoutHTTP(), SEATS)
    assert {step.status for episode in over_http for step in episode.steps} == {"ok", "unreadable"}


@pytest.mark.lowest
def test_a_request_carries_the_prompt_and_the_settings_and_a_seed_of_its_own() -> None:
    prompts, rngs = first_prompts(SNAKE, 4)
    with OpenAIServer(model()) as server:
        player(server, "org/some-model@v1", concurrency=1).complete(prompts, rngs)
    bodies = [asked.body for asked in server.asked]
    assert [body["messages"] for body in bodies] == [prompt.messages for prompt in prompts]
    settings = {"model": "org/some-model@v1", "temperature": 0.5, "max_tokens": 32}
    assert all(body | settings == body for body in bodies)
    seeds = [body["seed"] for body in bodies]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_as_many_requests_are_under_way_as_allowed_and_no_more() -> None:
    with OpenAIServer(model(delay=0.004)) as server:
        player(server, concurrency=3).complete(*first_prompts(SNAKE, 24))
    assert server.most_at_once == 3


def test_nothing_to_ask_is_no_request() -> None:
    with OpenAIServer(model()) as server:
        assert player(server).complete([], []) == []
    assert server.asked == []


FAULTS: dict[str, tuple[Fault, str]] = {
    "429": (send(429, b"slow down", {"Retry-After": "0"}), "HTTP 429 after 3 attempts: slow down"),
    "500": (send(500, b"<html>"), "HTTP 500 after 3 attempts: <html>"),
    "502": (send(502), "HTTP 502 after 3 attempts"),
    "503": (send(503, b'{"error": "over\\nloaded"}'), 'HTTP 503 after 3 attempts: {"error": "over\\nloaded"}'),
    "503 whose body is a JSON list": (send(503, b'[{"error": 1}]'), 'HTTP 503 after 3 attempts: [{"error": 1}]'),
    "503 whose errors are no list": (send(503, b'{"errors": {"message": 1}}'), "HTTP 503 after 3 attempts: {"),
    "503 whose body is no text": (send(503, b'{"\xff\xfe'), "HTTP 503 after 3 attempts: {"),
    "504": (send(504, b"line one\n\n  line two"), "HTTP 504 after 3 attempts: line one line two"),
    "timeout": (hang(3), "no answer ("),
    "closed": (close, "no answer (RemoteProtocolError) after 3 attempts"),
    "reset": (reset, "no answer (ReadError) after 3 attempts"),
    "broken off": (break_off, "no answer (RemoteProtocolError) after 3 attempts"),
    "no JSON": (send(200, b"<html>Welcome</html>"), "an answer that is no chat completion after 3 attempts"),
    "no text": (send(200, b"\xff\xfe\xfa"), "an answer that is no chat completion after 3 attempts"),
    "nothing": (send(200), "an answer that is no chat completion after 3 attempts"),
    "null": (send(200, b"null"), "an answer that is no chat completion after 3 attempts"),
    "a list": (send(200, b"[]"), "an answer that is no chat completion after 3 attempts"),
    "an error with 200": (send(200, b'{"error": "x"}'), "an answer that is no chat completion after 3 attempts"),
    "no choices": (send(200, b'{"choices": []}'), "an answer that is no chat completion after 3 attempts"),
    "choices of text": (send(200, b'{"choices": "abc"}'), "an answer that is no chat completion after 3 attempts"),
    "choices of numbers": (send(200, b'{"choices": [3]}'), "an answer that is no chat completion after 3 attempts"),
    "no message": (send(200, b'{"choices": [{"message": "hi"}]}'), "an answer that is no chat completion after 3 attempts"),
    "content in pieces": (send(200, chat_completion([{"text": "hi"}])), "an answer that is no chat completion after 3 attempts"),
    "empty content": (send(200, chat_completion("")), "an empty reply after 3 attempts"),
    "null content": (send(200, chat_completion(None)), "an empty reply after 3 attempts"),
}


@pytest.mark.lowest
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_leaves_no_trace(name: str, faultless: list[Episode]) -> None:
    fault, _ = FAULTS[name]
    slow = name == "timeout"
    with OpenAIServer(model(), once(fault) if slow else at_first(fault, 2)) as server:
        episodes = play_episodes(SNAKE, player(server, timeout=1.0 if slow else 20.0), SEATS[:3])
    assert episodes == faultless[:3]
    steps = sum(len(episode.steps) for episode in episodes)
    assert len(server.asked) > steps if slow else len(server.asked) == 3 * steps


@pytest.mark.lowest
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_stays_is_an_error_on_one_line_and_no_reply(name: str) -> None:
    fault, error = FAULTS[name]
    with OpenAIServer(model(), always(fault)) as server:
        completion = ask_once(player(server, attempts=3, timeout=0.1 if name == "timeout" else 20.0))
    assert (completion.text, completion.usage, len(server.asked)) == ("", None, 3)
    assert completion.error.startswith(error)
    assert " after 3 attempts" in completion.error
    assert completion.error.isprintable()
    assert len(completion.error) < 250


@pytest.mark.lowest
def test_failures_scored_as_skill_an_episode_without_an_answer_stops_and_the_others_do_not_notice(
    faultless: list[Episode],
) -> None:
    """One of six episode_keys loses its server at its second turn."""
    broken = stream(*SEATS[2][:1], "sampling", SEATS[2][1]).integers(2**31, size=2)[1]
    with OpenAIServer(model(), always(send(503, b"overloaded"), lambda body: body["seed"] == broken)) as server:
        episodes = play_episodes(SNAKE, player(server, attempts=2), SEATS)
    stopped = episodes.pop(2)
    assert stopped.error == "HTTP 503 after 2 attempts: overloaded"
    assert (stopped.terminated, stopped.truncated, stopped.success) == (False, False, False)
    assert stopped.steps == faultless[2].steps[:1]
    assert episodes == faultless[:2] + faultless[3:]


@pytest.mark.parametrize(
    ("answer", "text", "finish", "status"),
    [
        (chat_completion("", "length"), "", "length", "truncated_reply"),
        (chat_completion(None, "length"), "", "length", "truncated_reply"),
        (
            chat_completion("", reasoning_content="<action>Up</action>"),
            "<think><action>Up</action></think>",
            "stop",
            "unreadable",
        ),
        (chat_completion(None, "length", reasoning="Now"), "<think>Now</think>", "length", "truncated_reply"),
        (chat_completion("<action>up</action>", reasoning="Now"), "<think>Now</think><action>up</action>", "stop", "ok"),
        (chat_completion(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), "", "stop", "unreadable"),
        (chat_completion("\x00garbage\ud83d"), "\x00garbage\ud83d", "stop", "unreadable"),
        (chat_completion("<action>Up</action>", "eos_token"), "<action>Up</action>", "stop", "ok"),
    ],
)
def test_what_the_model_did_is_a_reply_and_is_not_asked_for_twice(answer: bytes, text: str, finish: str, status: str) -> None:
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
def test_tokens_are_counted_as_the_server_counts_them_or_not_at_all(usage: object, counts: tuple[int | None, int | None]) -> None:
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}
    with OpenAIServer(lambda _body: json.dumps(answer).encode()) as server:
        completion = ask_once(player(server))
    assert (completion.prompt_tokens, completion.reply_tokens, completion.error) == (*counts, "")


@pytest.mark.lowest
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_a_refused_request_is_an_error_of_the_user_after_one_request(status: int) -> None:
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


def test_a_refused_request_does_not_wait_for_those_that_pause() -> None:
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


@pytest.mark.lowest
def test_no_key_shows_in_any_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", f" {KEY}\n")
    with OpenAIServer(model(), always(echo_key(503))) as server:
        policy = player(server, attempts=2)
        shown = [ask_once(policy).error, repr(policy)]
    assert server.asked[0].key == f"Bearer {KEY}"
    for status in (400, 401):
        with OpenAIServer(model(), always(echo_key(status))) as server, pytest.raises(UserError) as error:
            ask_once(player(server))
        assert error.value.__suppress_context__  # a traceback would show the library's own words
        shown.append(str(error.value))
    assert "not with Bearer ***" in shown[0]
    for text in shown:
        assert KEY[:9] not in text
        assert len(text) < 600


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://router.huggingface.co/v1", "hf_secret"),
        ("https://abc.eu-west-1.aws.endpoints.huggingface.cloud", "hf_secret"),
        ("http://router.huggingface.co/v1", "no-key"),
        ("https://huggingface.co.example.org/v1", "no-key"),
        ("https://nothuggingface.co/v1", "no-key"),
        ("https://someone-model.hf.space/v1", "no-key"),
        ("http://localhost:8000/v1", "no-key"),
    ],
)
def test_the_hugging_face_token_goes_to_hugging_face_alone(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert make_endpoint(f"endpoint:{url}#m", temperature=1.0, max_new_tokens=8).server.key() == key


def test_another_server_never_sees_the_hugging_face_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with OpenAIServer(model()) as server:
        ask_once(player(server))
    assert server.asked[0].key == "Bearer no-key"


@pytest.mark.lowest
def test_a_provider_plays_as_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's address is the one thing changed: it lies on this machine."""
    monkeypatch.setenv("HF_TOKEN", KEY)
    with OpenAIServer(model(), at_first(send(502))) as server:
        monkeypatch.setattr(PROVIDERS["openai"]["conversational"], "base_url", server.url.removesuffix("/v1"))
        policy = make_endpoint("provider:openai/org/model", temperature=0.5, max_new_tokens=32)
        episodes = play_episodes(SNAKE, replace(policy, backoff=0.002), SEATS)
    assert {asked.key for asked in server.asked} == {f"Bearer {KEY}"}
    assert episodes == play_episodes(SNAKE, WithoutHTTP("org/model"), SEATS)


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        ("provider:nobody/m", {}, "Provider 'nobody' not supported"),
        ("provider:together/org/m", {"HF_TOKEN": ""}, "You must provide an api_key to work with together"),
        ("endpoint:http://127.0.0.1:9/v1#m", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids every request"),
    ],
)
def test_a_player_that_cannot_be_asked_at_all_is_an_error_of_the_user(
    name: str, environment: dict[str, str], expected: str, tmp_path: Path
) -> None:
    program = f"""
from msgrpo_hub.models.endpoint import make_endpoint
from msgrpo_hub.agent.policy import choose_random
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.rollout import play_episodes
try:
    play_episodes(make_game("Snake-Solo-v1"), make_endpoint({name!r}, temperature=1.0, max_new_tokens=8), [(0, 0)])
except UserError as error:
    print(error)
"""
    home = {**os.environ, "HF_HOME": str(tmp_path), **environment}
    result = subprocess.run([sys.executable, "-c", program], env=home, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"cannot play '{name}' ({expected}")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("header", ["1", "1.0", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_a_server_is_left_alone_as_long_as_it_asks(header: Any) -> None:
    """A date of whole seconds lies between one and two seconds ahead."""
    value = header if isinstance(header, str) else header()
    with OpenAIServer(model(), at_first(send(429, b"", {"Retry-After": value}))) as server:
        assert ask_once(player(server)).error == ""
    first, second = (asked.at for asked in server.asked)
    assert second - first > 0.9


@pytest.mark.parametrize(
    ("header", "attempts"), [("3600", "1 attempt (it asks to wait 3600 s)"), ("inf", "1 attempt (it asks to wait inf s)")]
)
def test_a_wait_beyond_the_patience_is_not_begun(header: str, attempts: str) -> None:
    began = time.monotonic()
    with OpenAIServer(model(), always(send(503, b"", {"Retry-After": header}))) as server:
        assert ask_once(player(server)).error == f"HTTP 503 after {attempts}"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("header", ["soon", "-5", "nan", ""])
def test_a_wait_that_cannot_be_read_is_none(header: str) -> None:
    with OpenAIServer(model(), at_first(send(503, b"", {"Retry-After": header}))) as server:
        assert ask_once(player(server)).error == ""


def test_pauses_double() -> None:
    with OpenAIServer(model(), always(send(500))) as server:
        ask_once(player(server, backoff=0.04, attempts=5))
    pauses = np.diff([asked.at for asked in server.asked])
    assert len(pauses) == 4
    assert all(0.02 * 2**k <= pause < 0.04 * 2**k + 5 for k, pause in enumerate(pauses))


@pytest.mark.parametrize("fault", [send(500), hang(60)], ids=["fails", "hangs"])
def test_patience_bounds_all_attempts_together(fault: Fault) -> None:
    began = time.monotonic()
    with OpenAIServer(model(), always(fault)) as server:
        completion = ask_once(player(server, attempts=10**6, patience=0.4, timeout=60.0))
    assert completion.error
    assert time.monotonic() - began < 30


def test_players_of_one_process_share_nothing() -> None:
    """Two servers with different models and different faults, played at the same time from two threads."""

    def play(job: tuple[OpenAIServer, str]) -> list[Episode]:
        return play_episodes(SNAKE, player(job[0], job[1]), SEATS)

    server_a, server_b = OpenAIServer(model("a"), at_first(reset)), OpenAIServer(model("b", 0.0002), at_first(send(429)))
    with server_a as a, server_b as b, ThreadPoolExecutor(2) as pool:
        of_a, of_b = pool.map(play, [(a, "model-a"), (b, "model-b")])
    assert of_a == play_episodes(SNAKE, WithoutHTTP("model-a", salt="a"), SEATS)
    assert of_b == play_episodes(SNAKE, WithoutHTTP("model-b", salt="b"), SEATS)
    assert of_a != of_b
    assert [{asked.body["model"] for asked in server.asked} for server in (a, b)] == [{"model-a"}, {"model-b"}]
    together = sorted([(asked.at, "a") for asked in a.asked] + [(asked.at, "b") for asked in b.asked])
    assert len({together[i][1] + together[i + 1][1] for i in range(len(together) - 1)} & {"ab", "ba"}) == 2


def test_two_models_of_one_server_are_told_apart() -> None:
    with OpenAIServer(model()) as server:
        policies = [player(server, name) for name in ("one", "two")]
        replies = [ask_once(policy) for policy in [*policies, *policies]]
    assert replies[:2] == replies[2:]
    assert replies[0] != replies[1]


@pytest.mark.parametrize(
    "name",
    [
        "pocket",
        "endpoint:",
        "endpoint:http://localhost:8000/v1",
        "endpoint:http://localhost:8000/v1#",
        "endpoint:localhost:8000/v1#m",
        "endpoint:ftp://localhost/v1#m",
        "endpoint:http://#m",
        "endpoint:http://localhost:port/v1#m",
        "endpoint:http://localhost:99999/v1#m",
        "endpoint:http://local host/v1#m",
        "endpoint:http://[::1/v1#m",
        "provider:",
        "provider:together",
        "provider:together/",
        "provider:/org/model",
        "Endpoint:http://localhost/v1#m",
    ],
)
def test_a_malformed_name_is_an_error_of_the_user(name: str) -> None:
    with pytest.raises(UserError) as error:
        make_endpoint(name, temperature=1.0, max_new_tokens=8)
    assert str(error.value).startswith(f"cannot read the player '{name}': expected endpoint:URL#MODEL, as ")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["endpoint:http://me:pass@host/v1#m", "endpoint:https://pass@host:80/v1#org/m@v1"])
def test_a_password_in_a_url_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UserError, match=r"'endpoint:https?://\*\*\*@host.*no user or password in the URL") as error:
        make_endpoint(name, temperature=1.0, max_new_tokens=8)
    assert "pass@" not in str(error.value)


# --- `transformers serve`: a real server with the built-in base behind it.

POCKET = Path(pocket_init).parent / "model"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def served_pocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `transformers serve`, in a process of its own."""
    port, log = free_port(), tmp_path_factory.mktemp("serve") / "log"
    program = "from transformers.cli.transformers import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", str(POCKET), *options], env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 400  # seconds; some 10 on a machine with nothing else to do
        while not is_healthy(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


def is_healthy(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except URLError:
        return False


def greedy(url: str, max_new_tokens: int = 64) -> EndpointPolicy:
    """The served model at temperature 0."""
    policy = make_endpoint(f"endpoint:{url}#{POCKET}", temperature=0.0, max_new_tokens=max_new_tokens)
    return replace(policy, backoff=0.01, timeout=60.0)


@pytest.mark.slow
@pytest.mark.parametrize("game_id", ["Snake-Solo-v1", "FrozenLake-Slippery-v1"])
def test_a_served_model_plays_as_the_loaded_one(served_pocket: str, game_id: str) -> None:
    """The same words, tokens, actions and rewards; the server adds the end token's text and splits off the thinking."""
    from msgrpo_hub.models.language_model import LanguageModel

    game, episode_keys = make_game(game_id), [(seed, 0) for seed in range(4)]
    loaded = play_episodes(game, LanguageModel.from_pretrained("pocket", temperature=0.0, max_new_tokens=64), episode_keys)
    served = play_episodes(game, greedy(served_pocket), episode_keys)
    assert len({step.action for episode in served for step in episode.steps}) > 2
    for ours, theirs in zip(loaded, served, strict=True):
        assert (ours.reward, ours.terminated, ours.truncated, ours.success) == (
            theirs.reward,
            theirs.terminated,
            theirs.truncated,
            theirs.success,
        )
        for mine, other in zip(ours.steps, theirs.steps, strict=True):
            assert (mine.observation, mine.action, mine.status) == (other.observation, other.action, other.status)
            assert mine.completion.text == other.completion.text.replace("<|end|>", "")
            assert (mine.completion.prompt_tokens, mine.completion.reply_tokens) == other.completion.usage


@pytest.mark.slow
def test_a_served_reply_that_is_cut_is_marked(served_pocket: str) -> None:
    (episode,) = play_episodes(make_game("FrozenLake-NotSlippery-v1"), greedy(served_pocket, max_new_tokens=4), [(0, 0)])
    assert {(step.status, step.completion.finish) for step in episode.steps} == {("truncated_reply", "length")}
    assert {step.completion.reply_tokens for step in episode.steps} == {4}


@pytest.fixture(scope="module")
def direct(served_pocket: str) -> list[Episode]:
    return play_episodes(SNAKE, greedy(served_pocket), SEATS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["429", "reset", "empty content"])
def test_a_served_model_plays_the_same_behind_a_proxy_that_fails(served_pocket: str, direct: list[Episode], name: str) -> None:
    with OpenAIServer(forward_to(served_pocket), at_first(FAULTS[name][0])) as proxy:
        behind = play_episodes(SNAKE, greedy(proxy.url), SEATS[:2])
    assert [episode.error for episode in direct + behind] == [""] * 4
    assert behind == direct


@pytest.mark.slow
def test_a_served_model_of_another_name_is_an_error_of_the_user(served_pocket: str) -> None:
    policy = make_endpoint(f"endpoint:{served_pocket}#org/other", temperature=0.0, max_new_tokens=8)
    with pytest.raises(UserError, match=r"HTTP 400 .*Server is pinned to .*requested 'org/other'"):
        ask_once(policy)
