"""The loopback server answers as a real vLLM did: its transcript has the same statuses, fields, tokens and log-probabilities.

The transcript has every route that training uses and the errors it relies on, with the built-in base and the adapter beside this
file. A real server answered, started with the flags of the guide and `--dtype float32 --enforce-eager`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from msgrpo_hub.downloads.names import pocket_path
from tests.models.vllm_loopback import VllmLoopback

Json = dict[str, Any]

TRANSCRIPT = Path(__file__).with_name("vllm_transcript.json")
REAL: list[Json] = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))["transcript"]
PLACES = {"ADAPTER": str(Path(__file__).with_name("adapter_of_transcripts")), "BASE": str(pocket_path())}
"""Placeholders in the transcript for paths of this machine."""
LEFT_OUT = {
    *("id", "created", "system_fingerprint", "permission", "text_offset", "rank", "decoded_token", "top_logprobs", "token_strs"),
}
"""Fields that differ from run to run, or that the client does not read."""


def ask(url: str, method: str, path: str, body: Json) -> tuple[int, Any]:
    """The status and the body of an answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=300)
    content = json.dumps(body)
    for place, real in PLACES.items():
        content = content.replace(f'"{place}"', json.dumps(real))
    connection.request(method, path, content if method == "POST" else None, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    for place, real in PLACES.items():
        text = text.replace(real, place)
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text


def transcript(url: str) -> list[Json]:
    """The requests of the transcript with a server's answers."""
    answers = [ask(url, asked["method"], asked["path"], asked["body"]) for asked in REAL]
    return [asked | {"status": status, "answer": answer} for asked, (status, answer) in zip(REAL, answers, strict=True)]


@pytest.fixture(scope="module")
def ours() -> Iterator[list[Json]]:
    with VllmLoopback(PLACES["BASE"]) as server:
        yield transcript(server.url)


def differences(real: Any, ours: Any, at: str = "") -> list[str]:
    """The differences of our answer from the real server's, which may have further fields that are null."""
    if isinstance(real, dict) and isinstance(ours, dict):
        keys = [key for key in real if key not in LEFT_OUT and (real[key] is not None or key in ours)]
        missing = [f"{at}.{key} is missing" for key in keys if key not in ours]
        return missing + [line for key in keys if key in ours for line in differences(real[key], ours[key], f"{at}.{key}")]
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [line for k, (a, b) in enumerate(zip(real, ours, strict=True)) for line in differences(a, b, f"{at}[{k}]")]
    if isinstance(real, float) and isinstance(ours, float):
        return [] if real == pytest.approx(ours, abs=1e-3) else [f"{at}: {real} there, {ours} here"]
    return [] if type(real) is type(ours) and real == ours else [f"{at}: {real!r} there, {ours!r} here"]


@pytest.mark.parametrize("number", range(len(REAL)))
def test_the_loopback_server_answers_as_the_real_one_did(ours: list[Json], number: int) -> None:
    asked, status, answer = REAL[number], ours[number]["status"], ours[number]["answer"]
    assert status == asked["status"]
    if asked["body"].get("max_tokens") == 1 and status == 200:  # the one token is drawn
        for choice in (asked["answer"]["choices"][0], answer["choices"][0]):
            for name in ("text", "token_ids", "finish_reason", "stop_reason"):
                choice.pop(name)
            if choice["logprobs"]:
                likely = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)[:5]
                choice["logprobs"] = {"likely": likely}
    assert differences(asked["answer"], answer) == []
