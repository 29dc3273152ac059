"""Names of players over HTTP, and their keys: which servers receive a key, and that no message contains one."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import chat_server
from msgrpo_hub.models.endpoint import make_endpoint
from msgrpo_hub.rollout import play_episodes
from tests.models.endpoint_players import EPISODE_KEYS, SNAKE, WithoutHTTP, ask_once, model, player
from tests.models.openai_server import (
    OpenAIServer,
    always,
    at_first,
    echo_key,
    send,
)

KEY = "sk-very-secret-0123456789"


@pytest.mark.lowest
def test_no_message_contains_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", f" {KEY}\n")
    with OpenAIServer(model(), always(echo_key(503))) as server:
        policy = player(server, attempts=2)
        messages = [ask_once(policy).error, repr(policy)]
    assert server.asked[0].key == f"Bearer {KEY}"
    for status in (400, 401):
        with OpenAIServer(model(), always(echo_key(status))) as server, pytest.raises(UserError) as error:
            ask_once(player(server))
        assert error.value.__suppress_context__  # a traceback would show the library's message
        messages.append(str(error.value))
    assert "not with Bearer ***" in messages[0]
    for text in messages:
        assert KEY[:9] not in text
        assert len(text) < 600


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://router.huggingface.co/v1", "hf_secret"),
        ("https://abc.eu-west-1.aws.endpoints.huggingface.cloud", "hf_secret"),
        ("http://router.huggingface.co/v1", ""),
        ("https://huggingface.co.example.org/v1", ""),
        ("https://nothuggingface.co/v1", ""),
        ("https://someone-model.hf.space/v1", ""),
        ("http://localhost:8000/v1", ""),
    ],
)
def test_the_hugging_face_token_goes_to_hugging_face_only(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert make_endpoint(f"endpoint:{url}#m", temperature=1.0, max_new_tokens=8).server.key() == key


def test_another_server_never_sees_the_hugging_face_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with OpenAIServer(model()) as server:
        ask_once(player(server))
    assert server.asked[0].key == ""


@pytest.mark.lowest
def test_a_provider_plays_as_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the address of the router is changed, to this machine. The provider is chosen in the model's name there."""
    monkeypatch.setenv("HF_TOKEN", KEY)
    for name, sent in (("provider:together/org/model", "org/model:together"), ("provider:auto/org/model", "org/model")):
        with OpenAIServer(model(), at_first(send(502))) as server:
            monkeypatch.setattr(chat_server, "ROUTER", server.url)
            policy = make_endpoint(name, temperature=0.5, max_new_tokens=32)
            episodes = play_episodes(SNAKE, replace(policy, backoff=0.002), EPISODE_KEYS)
        assert {asked.key for asked in server.asked} == {f"Bearer {KEY}"}
        assert episodes == play_episodes(SNAKE, WithoutHTTP(sent), EPISODE_KEYS)


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        ("provider:together/org/m", {"HF_TOKEN": ""}, "no Hugging Face token was found"),
        ("provider:together/org/m", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids every request"),
        ("endpoint:http://example.org/v1#m", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids every request"),
        ("endpoint:http://localhost.example.org/v1#m", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids every request"),
    ],
)
def test_a_player_that_can_never_answer_is_a_user_error(
    name: str, environment: dict[str, str], expected: str, tmp_path: Path
) -> None:
    program = f"""
from msgrpo_hub.models import chat_server
from msgrpo_hub.models.endpoint import make_endpoint
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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_this_machine_is_asked_offline_and_without_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with OpenAIServer(model()) as server:
        url = server.url.replace("127.0.0.1", host)
        assert ask_once(make_endpoint(f"endpoint:{url}#m", temperature=0.5, max_new_tokens=32)).error == ""


def test_a_server_on_this_machine_leads_to_no_other_one_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with (
        OpenAIServer(model()) as other,
        OpenAIServer(model(), always(send(308, b"", {"Location": f"{other.url}/chat/completions"}))) as server,
        pytest.raises(UserError, match="HTTP 308"),
    ):
        ask_once(player(server))
    assert not other.asked


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/v1/", "http://h:8000/v1/chat/completions"),
        ("http://h/proxy/v1?key=k", "http://h/proxy/v1/chat/completions?key=k"),
        ("https://h/openai/chat/completions?api-version=1", "https://h/openai/chat/completions?api-version=1"),
    ],
)
def test_the_route_of_chats_is_added_to_a_url_that_does_not_have_it(
    url: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = []

    def fails(_: object, url: str, **__: object) -> None:
        urls.append(url)
        raise chat_server.HTTPError("unplugged")

    monkeypatch.setattr("msgrpo_hub.models.http_client.httpx.Client.post", fails)
    monkeypatch.setattr(chat_server, "returns_tokens", lambda *_, **__: False)
    policy = make_endpoint(f"endpoint:{url}#m", temperature=0.5, max_new_tokens=32)
    assert ask_once(replace(policy, attempts=1)).error == "no response (HTTPError) after 1 attempt"
    assert urls == [asked]


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
        "endpoint:http://a..b/v1#m",
        f"endpoint:http://{'a' * 70}.org/v1#m",
        "provider:",
        "provider:together",
        "provider:together/",
        "provider:/org/model",
        "Endpoint:http://localhost/v1#m",
    ],
)
def test_a_malformed_name_is_a_user_error(name: str) -> None:
    with pytest.raises(UserError) as error:
        make_endpoint(name, temperature=1.0, max_new_tokens=8)
    assert str(error.value).startswith(f"cannot parse the player '{name}': expected endpoint:URL#MODEL, e.g. ")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["endpoint:ftp://me:pass@host/v1?key=hidden#m", "endpoint:http://me:pass@host:x/?key=hidden#m"])
def test_a_malformed_name_is_quoted_without_its_secrets(name: str) -> None:
    with pytest.raises(UserError, match=r"'endpoint:(ftp|http)://\*\*\*@host[^?]*\?\*\*\*#m'") as error:
        make_endpoint(name, temperature=1.0, max_new_tokens=8)
    assert "pass" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_user_password_and_query_of_a_url_are_sent_and_never_told() -> None:
    secrets = ("me-myself", "open sesame", "tell-nobody", b64encode(b"me-myself:open sesame").decode())

    def quotes_all(handler: BaseHTTPRequestHandler) -> None:
        send(503, f"{handler.path} {handler.headers['Authorization']} {' '.join(secrets)}".encode())(handler)

    with OpenAIServer(model(), at_first(quotes_all)) as server:
        url = server.url.replace("//", "//me-myself:open%20sesame@")
        policy = replace(make_endpoint(f"endpoint:{url}?key=tell-nobody#m", temperature=0.5, max_new_tokens=32), backoff=0.002)
        assert policy.server.name == f"endpoint:{server.url}#m"
        told = [repr(policy), ask_once(replace(policy, attempts=1)).error]
        assert ask_once(policy).error == ""
    assert {asked.key for asked in server.asked} == {f"Basic {secrets[-1]}"}
    assert {asked.query for asked in server.asked} == {"key=tell-nobody"}
    assert "HTTP 503 after 1 attempt: /v1/chat/completions?key=*** Basic ***" in told[1]
    assert not [(secret, text) for secret in secrets for text in told if secret in text]
