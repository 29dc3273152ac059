"""A loopback server with vLLM's routes over our own engine, and the faults of real servers.

`test_vllm_transcripts.py` compares its answers with a real vLLM's.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import token_batch, token_log_probs
from tests.models.openai_server import Loopback, send

MAX_MODEL_LEN = 1024
Json = dict[str, Any]
Answered = tuple[int, Any]
"""Status and body; a text is sent unchanged."""


def error(status: int, message: str, kind: str, param: str | None = None) -> Answered:
    return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass
class VllmLoopback(Loopback):
    """Serves a base and its adapters on a free port inside its `with` block.

    Its attributes after `base` are faults, which a test sets at any time.
    """

    base: str
    ignores_adapters: bool = False
    """Adapters load, and every reply comes from the base."""
    stays: bool = False
    """Replies come from the first adapter that was ever loaded."""
    hangs: threading.Event = field(default_factory=threading.Event)
    """While set, completions get no answer."""
    before: Callable[[str, Json], Answered | None] = lambda _path, _body: None
    """Called with each request; its answer, if it gives one, is sent instead."""

    def __post_init__(self) -> None:
        self.asked: list[tuple[str, Json]] = []
        self._lock = threading.RLock()
        self._agent = LanguageModel.from_pretrained(self.base)
        self._model: Any = self._agent.model
        self._engine = self._agent.engine
        self._loaded: dict[str, str] = {}
        """Name → name in the model."""
        self._paths: dict[str, str] = {}
        self._first = ""
        self._seeds, self._ids = itertools.count(), itertools.count()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.forget()

    def forget(self) -> None:
        """Loses every adapter, as a new process does."""
        with self._lock:
            self._loaded.clear()
            self._paths.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def loaded(self) -> list[str]:
        return [*self._loaded]

    def of(self, path: str) -> list[Json]:
        """The bodies of the requests to a route."""
        return [body for asked, body in self.asked if asked == path]

    def serve(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        body = json.loads(text)
        self.asked.append((handler.path, body))
        status, answer = self.before(handler.path, body) or self.answer(handler.path, body)
        with suppress(ConnectionError):  # of a client that no longer waits
            send(status, (answer if isinstance(answer, str) else json.dumps(answer)).encode())(handler)

    # ---- vLLM's routes

    def answer(self, path: str, body: Json) -> Answered:
        routes: dict[str, Callable[[Json], Answered]] = {
            "/health": lambda _: (200, ""),
            "/v1/models": self._models,
            "/v1/load_lora_adapter": self._load,
            "/v1/unload_lora_adapter": self._unload,
            "/v1/completions": self._completion,
        }
        return routes[path](body) if path in routes else (404, {"detail": "Not Found"})

    def _models(self, _: Json) -> Answered:
        def card(name: str, root: str, parent: str | None, length: int | None) -> Json:
            return {"id": name, "object": "model", "owned_by": "vllm", "root": root, "parent": parent, "max_model_len": length}

        base = card(self.base, self.base, None, MAX_MODEL_LEN)
        return 200, {"object": "list", "data": [base, *(card(name, path, self.base, None) for name, path in self._paths.items())]}

    def _load(self, body: Json) -> Answered:
        name, path = body["lora_name"], Path(body["lora_path"])
        with self._lock:
            if name in self._loaded:
                again = "If you want to load the adapter in place, set 'load_inplace' to True."
                return error(400, f"The lora adapter '{name}' has already been loaded. {again}", "InvalidUserInput")
            if not (path / "adapter_config.json").exists():
                return error(404, f"Loading lora {name} failed: No adapter found for {path}", "NotFoundError")
            inside = f"adapter{next(self._ids)}"
            if isinstance(self._model, PeftModel):
                self._model.load_adapter(str(path), inside)
            else:
                self._model = PeftModel.from_pretrained(self._model, str(path), inside)
                self._engine = Engine(self._model, self._engine.end_ids)
            self._model.eval()
            self._loaded[name], self._paths[name] = inside, str(path)
            self._first = self._first or inside
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: Json) -> Answered:
        with self._lock:
            self._paths.pop(body["lora_name"], None)
            if self._loaded.pop(body["lora_name"], None) is None:
                return error(404, f"The lora adapter '{body['lora_name']}' cannot be found.", "NotFoundError")
        return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."

    def _completion(self, body: Json) -> Answered:
        while self.hangs.is_set():
            time.sleep(0.01)
        name, prompt = body["model"], tuple(body["prompt"])
        with self._lock:
            aliases = ", ".join([self.base, *self._loaded])
            if name not in (self.base, *self._loaded):
                return error(404, f"The model `{name}` does not exist. Valid aliases: {aliases}.", "NotFoundError", "model")
            inside = self._first if self.stays else self._loaded.get(name, "")
            from_base = not inside or self.ignores_adapters
            if not from_base:
                self._model.set_adapter(inside, inference_mode=True)
            adapted = isinstance(self._model, PeftModel)
            with self._model.disable_adapter() if from_base and adapted else nullcontext():
                return 200, self._complete(body, prompt)

    @torch.no_grad()
    def _complete(self, body: Json, prompt: tuple[int, ...]) -> Json:
        temperature = body["temperature"]
        self._engine.end_ids = frozenset(body.get("stop_token_ids", ()))
        rng = np.random.default_rng(next(self._seeds))
        [sample] = self._engine.sample([prompt], [rng], temperature, body["max_tokens"])
        choice: Json = {
            "index": 0,
            "text": self._agent.tokenizer.decode(sample.token_ids, skip_special_tokens=True),
            "logprobs": None,
            "finish_reason": sample.finish,
            "stop_reason": sample.token_ids[-1] if sample.finish == "stop" else None,
            "token_ids": sample.token_ids if body.get("return_token_ids") else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(prompt) if body.get("return_token_ids") else None,
        }
        if (count := body.get("logprobs")) is not None:
            as_ids = bool(body.get("return_tokens_as_token_ids"))
            tokens = [self._text(token, as_ids) for token in sample.token_ids]
            likely = self._likely(prompt, sample.token_ids, temperature or 1.0, count, as_ids)
            own = [{token: log_prob} for token, log_prob in zip(tokens, sample.log_probs, strict=True)]
            choice["logprobs"] = {
                "text_offset": [0] * len(tokens),
                "token_logprobs": sample.log_probs,
                "tokens": tokens,
                "top_logprobs": [mine | further for mine, further in zip(own, likely, strict=True)],
            }
        if body.get("prompt_logprobs") is not None:
            batch, _ = token_batch([[(prompt[:1], prompt[1:])]], 0)
            scores = token_log_probs(self._model, batch, 1.0, tree=False).tolist()
            choice["prompt_logprobs"] = [None] + [
                {str(token): {"logprob": score, "rank": 1, "decoded_token": self._agent.tokenizer.decode([token])}}
                for token, score in zip(prompt[1:], scores, strict=True)
            ]
        written = len(sample.token_ids)
        usage = {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + written, "completion_tokens": written}
        head = {"id": f"cmpl-{next(self._ids)}", "object": "text_completion", "created": 1, "model": body["model"]}
        return {**head, "choices": [choice], "usage": usage}

    def _text(self, token: int, as_id: bool) -> str:
        return f"token_id:{token}" if as_id else str(self._agent.tokenizer.decode([token]))

    def _likely(
        self, prompt: tuple[int, ...], reply: Sequence[int], temperature: float, count: int, as_ids: bool
    ) -> list[dict[str, float]]:
        """The likeliest tokens at each position of a reply, as text, with their log-probabilities."""
        if not count:
            return [{} for _ in reply]
        logits = self._model(torch.tensor([[*prompt, *reply[:-1]]])).logits[0, len(prompt) - 1 :].float()
        values, tokens = torch.log_softmax(logits / temperature, -1).topk(count)
        texts = [[self._text(token, as_ids) for token in row] for row in tokens.tolist()]
        return [dict(zip(names, row, strict=True)) for names, row in zip(texts, values.tolist(), strict=True)]
