"""The requests of a vLLM server's transcript: every route that training uses, and the errors it relies on.

Our engine must give the same numbers with the built-in base and the adapter beside this file. A real server answered them,
started with the flags of the guide and `--dtype float32 --enforce-eager`.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.models.language_model import LanguageModel

Json = dict[str, Any]

TRANSCRIPT = Path(__file__).with_name("vllm_transcript.json")
ADAPTER = Path(__file__).with_name("adapter_of_transcripts")
BASE = str(pocket_path())
PLACES = {"ADAPTER": str(ADAPTER), "BASE": BASE}
"""Placeholders in the transcript for paths of this machine."""


def requests() -> list[tuple[str, str, Json]]:
    """(method, path, body) in their order."""
    agent, game = LanguageModel.from_pretrained(BASE), make_game("FrozenLake-NotSlippery-v1")
    prompt = build_prompt(game, game.initial_state(stream(0, "initial_state")))
    [text], [ids], ends = agent.render([prompt]), agent.encode([prompt]), sorted(agent.engine.end_ids)
    plain = {"return_token_ids": True, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

    def completion(model: str, **more: Any) -> tuple[str, str, Json]:
        return "POST", "/v1/completions", {"model": model, "prompt": list(ids), **plain, **more}

    sampling = {"stop_token_ids": ends, "ignore_eos": True}
    return [
        ("GET", "/v1/models", {}),
        ("POST", "/tokenize", {"prompt": text, "add_special_tokens": False}),
        completion("lake", temperature=1.0, max_tokens=1),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "lake", "lora_path": "ADAPTER"}),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "lake", "lora_path": "ADAPTER"}),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "other", "lora_path": "/nowhere"}),
        ("GET", "/v1/models", {}),
        completion("BASE", temperature=0.0, max_tokens=32, logprobs=0, **sampling),
        completion("lake", temperature=0.0, max_tokens=32, logprobs=0, **sampling),
        completion("lake", temperature=0.0, max_tokens=2, logprobs=0, **sampling),
        completion("BASE", temperature=1.0, max_tokens=1, prompt_logprobs=0),
        completion("lake", temperature=1.0, max_tokens=1, prompt_logprobs=0),
        completion("lake", temperature=1.0, max_tokens=1, logprobs=5, return_tokens_as_token_ids=True),
        completion("lake", temperature=2.0, max_tokens=1, logprobs=5, return_tokens_as_token_ids=True),
        ("POST", "/v1/unload_lora_adapter", {"lora_name": "lake"}),
        ("POST", "/v1/unload_lora_adapter", {"lora_name": "lake"}),
        completion("lake", temperature=1.0, max_tokens=1),
        ("POST", "/v1/no_such_route", {"lora_name": "lake"}),
    ]


def ask(url: str, method: str, path: str, body: Json) -> tuple[int, Any]:
    """The status and the body of an answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=300)
    content = json.dumps(body) if method == "POST" else None
    for place, real in PLACES.items():
        content = content and content.replace(f'"{place}"', json.dumps(real))
    connection.request(method, path, content, {"Content-Type": "application/json"})
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
    """Every request with its answer."""
    asked = []
    for method, path, body in requests():
        status, answer = ask(url, method, path, body)
        asked.append({"method": method, "path": path, "body": body, "status": status, "answer": answer})
    return asked
