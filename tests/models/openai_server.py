"""Loopback servers over real sockets: any HTTP server, and one with OpenAI's chat protocol and the faults of real servers."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Body = dict[str, Any]
Answer = Callable[[Body], bytes]
"""Request body → response body."""

Fault = Callable[[BaseHTTPRequestHandler], None]
"""Writes a faulty response."""

Faults = Callable[[Body, int], Fault | None]
"""(request body, number of earlier identical requests) → the fault, or None."""


@dataclass(frozen=True)
class Asked:
    body: Body
    key: str
    at: float
    query: str = ""


def chat_completion(content: object, finish: str = "stop", **message: object) -> bytes:
    """A response as a server writes it; each character counts as a token."""
    reply = {"role": "assistant", "content": content, **message}
    usage = {"prompt_tokens": 7, "completion_tokens": len(str(content or "")), "total_tokens": 7 + len(str(content or ""))}
    choice = {"index": 0, "message": reply, "finish_reason": finish}
    answer = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(answer).encode()


def no_faults(body: Body, before: int) -> Fault | None:  # noqa: ARG001
    return None


def at_first(fault: Fault, times: int = 1) -> Faults:
    """Every request fails `times` times before it succeeds."""
    return lambda _body, before: fault if before < times else None


def always(fault: Fault, where: Callable[[Body], bool] = lambda _body: True) -> Faults:
    return lambda body, _before: fault if where(body) else None


def send(status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> Fault:

    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return fault


def hang(seconds: float) -> Fault:
    def fault(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return fault


def close(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def break_off(handler: BaseHTTPRequestHandler) -> None:
    """Announces more bytes than it sends."""
    send(200, b'{"choices": [', {"Content-Length": "1000"})(handler)
    handler.close_connection = True


def _openai(message: str, param: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}})


def _gemini(message: str) -> str:
    return json.dumps([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}])


_FORBIDDEN = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 1}
_MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
_LITERAL = {"type": "literal_error", "loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user' or 'assistant'"}

REFUSALS: dict[str, tuple[str, int, str]] = {
    "OpenAI, max_tokens": ("max_tokens", 400, _openai(_MAX_TOKENS, "max_tokens")),
    "Gemini, seed": ("seed", 400, _gemini('Invalid JSON payload received. Unknown name "seed": Cannot find field.')),
    "Mistral, seed": ("seed", 422, json.dumps({"message": {"detail": [_FORBIDDEN]}, "type": "invalid_request_error"})),
    "OpenAI, system role": (
        "system role",
        400,
        _openai("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "messages[0].role"),
    ),
    "vLLM, roles": ("system role", 400, _openai("Conversation roles must alternate user/assistant/user/assistant/...")),
    "llama.cpp, system role": ("system role", 500, _openai("Error: Jinja Exception: System role not supported")),
    "Gemini, system role": ("system role", 400, _gemini("Developer instruction is not enabled for models/gemma-3-27b-it")),
    "FastAPI, system role": ("system role", 422, json.dumps({"detail": [_LITERAL]})),
}
"""Server → the refused part, as an identity records it; the status and the body of its response, from public issues."""


def is_refused(what: str, body: Body) -> bool:
    return any(message["role"] == "system" for message in body["messages"]) if what == "system role" else what in body


def refusing(*names: str) -> Faults:
    def fault(body: Body, _before: int) -> Fault | None:
        for what, status, content in map(REFUSALS.__getitem__, names):
            if is_refused(what, body):
                return send(status, content.encode())
        return None

    return fault


class Loopback:
    """Serves on a free port inside its `with` block, with one thread per request. A later block has the same port."""

    port = 0

    def serve(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        """Answers a request with this body."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise each response waits 40 ms for a delayed acknowledgement

            def do_POST(self) -> None:
                outer.serve(self, self.rfile.read(int(self.headers["Content-Length"])).decode())

            def do_GET(self) -> None:
                outer.serve(self, "{}")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


@dataclass
class OpenAIServer(Loopback):
    """A chat server whose replies and faults a test chooses."""

    answer: Answer
    faults: Faults = no_faults
    asked: list[Asked] = field(default_factory=list)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._lock, self._now = threading.Lock(), 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def serve(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        body = json.loads(text)
        path, _, query = handler.path.partition("?")
        with self._lock:
            before, self._seen[text] = self._seen[text], self._seen[text] + 1
            self.asked.append(Asked(body, handler.headers.get("Authorization", ""), time.monotonic(), query))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            if path != "/v1/chat/completions":
                send(404)(handler)
            else:
                (self.faults(body, before) or send(200, self.answer(body)))(handler)
        finally:
            with self._lock:
                self._now -= 1


def chat_reply(body: Body) -> str:
    """Thoughts and an action, as a function of the messages and the seed. The action may be missing or unknown to the game."""
    asked = [[message["role"], message["content"]] for message in body["messages"]], body["seed"]
    digest = hashlib.sha256(json.dumps(asked).encode()).digest()
    lines = body["messages"][0]["content"].splitlines()
    actions = [*lines[lines.index("[Available Actions]") + 1].split(", "), "Jump"] if "[Available Actions]" in lines else ["Jump"]
    if digest[1] % 8 == 0:
        return f"<think>{digest.hex()[:6]}</think>I would rather not."
    return f"<think>{digest.hex()[:6]}</think><action>{actions[digest[0] % len(actions)]}</action>"


def model(finish: str = "stop", delay: float = 0.0) -> Answer:
    """A model behind a server. Delays differ between requests, so that replies arrive out of order."""

    def answer(body: Body) -> bytes:
        text = chat_reply(body)
        time.sleep(delay * len(set(text)) % 1)
        return chat_completion(text, finish)

    return answer
