"""One vLLM server over HTTP: token ids in, token ids with their log-probabilities out, and LoRA adapters loaded by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, cast
from urllib.parse import urlsplit

from msgrpo_hub.downloads.names import is_http
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.models.chat_server import KEY_VARIABLE, server_key, without_key
from msgrpo_hub.models.sampling import TokenIds

START = (
    "`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve BASE --enable-lora --max-lora-rank R --logprobs-mode processed_logprobs`"
)
"""How a server is started."""


class LostError(Exception):
    """A server gave no valid answer. It may have stopped, hung or started anew, so what it had is unknown."""


class _FailedError(LostError):
    """A server failed at a request; it may be well otherwise."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A sampled reply."""

    token_ids: TokenIds
    log_probs: tuple[float, ...]
    """log p of each token under the distribution that it was sampled from."""


@dataclass(frozen=True, kw_only=True)
class VllmServer:
    """A vLLM server. The object holds no key and no connection.

    Every method raises `LostError` if the server gives no valid answer, and `UserError` if it refuses a request for good.
    """

    url: str
    """Scheme, host and port, such as http://localhost:8000; perhaps a path before `/v1`."""
    timeout: float = field(default=300.0, compare=False)
    """Seconds without a byte after which a request fails. The longest reply of a busy server must fit in."""

    def max_model_len(self) -> int:
        """The most tokens of a prompt with its reply. The answer also tells that this is a vLLM server."""
        try:
            models = self._ask("GET", "/v1/models")
        except _MissingError as error:
            models = str(error)
        match models:
            case {"data": [{"owned_by": "vllm", "max_model_len": int(length)}, *_]}:
                return length
        raise UserError(f"the server {self.url!r} is not vLLM: expected one, started with {START}")

    def tokenize(self, text: str) -> TokenIds:
        """The token ids of a text that has its special tokens already."""
        try:
            answer = self._ask("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
        except _MissingError as error:
            raise UserError(f"the server {self.url!r} has no /tokenize ({error}): expected vLLM itself, not a router") from error
        match answer:
            case {"tokens": [*ids]}:
                return tuple(ids)
        raise LostError("an invalid answer to /tokenize")

    def load(self, name: str, path: str) -> None:
        """Loads an adapter under a name. The folder must have this path on the machine of the server as well."""
        try:
            self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        except _MissingError as error:
            if str(error) == _NO_ROUTE:
                raise UserError(f"the server {self.url!r} loads no adapters: start it with {START}") from error
            raise UserError(
                f"the server {self.url!r} cannot load the adapter in {path!r} ({error}): expected a server that sees this "
                "folder under the same path; choose an --output-dir that it sees"
            ) from error
        except _FailedError as error:  # as where the rank is too large, or LoRA is off; also where the server is about to end
            if self._is_healthy():
                raise UserError(
                    f"the server {self.url!r} cannot load the adapter ({error}): expected one started with {START}"
                ) from error
            raise

    def _is_healthy(self) -> bool:
        try:
            self._ask("GET", "/health")
        except (LostError, _MissingError, UserError):
            return False
        return True

    def unload(self, name: str) -> None:
        """Unloads an adapter; one that is not there is no error."""
        with suppress(_MissingError):
            self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def sample(self, name: str, prompt: TokenIds, *, temperature: float, max_new_tokens: int, end_ids: Sequence[int]) -> Reply:
        """Samples one reply with the adapter of a name. The server's own defaults for sampling do not count."""
        choice = self._complete(
            name,
            prompt,
            temperature=temperature,
            max_tokens=max_new_tokens,
            stop_token_ids=sorted(end_ids),
            ignore_eos=True,  # of the server's tokenizer; ours are the line before
            logprobs=0,
        )
        match choice:
            case {"token_ids": [_, *_] as ids, "logprobs": {"token_logprobs": [*log_probs]}, "finish_reason": "stop" | "length"}:
                ended = ids[-1] in end_ids or len(ids) == max_new_tokens
                if ended and len(ids) == len(log_probs) and all(map(_is_log_prob, log_probs)):
                    return Reply(tuple(ids), tuple(map(float, log_probs)))
                if choice["finish_reason"] == "length" and len(ids) < max_new_tokens:  # vLLM leaves out what does not fit
                    needed = len(prompt) + max_new_tokens
                    raise UserError(
                        f"the server {self.url!r} ended a reply after {len(ids)} of {max_new_tokens} tokens: its prompt has "
                        f"{len(prompt)}; start it with --max-model-len {needed} or more, and continue with --resume"
                    )
        raise LostError("a completion without its token ids and log-probabilities")

    def score(self, name: str, token_ids: TokenIds) -> list[float]:
        """log p of each token but the first, given those before it, at temperature 1."""
        choice = self._complete(name, token_ids, temperature=1.0, max_tokens=1, prompt_logprobs=0)
        try:
            of_tokens = choice["prompt_logprobs"][1:]
            log_probs = [given[str(token)]["logprob"] for given, token in zip(of_tokens, token_ids[1:], strict=True)]
        except (KeyError, TypeError, ValueError):
            log_probs = [math.nan]
        if not all(map(_is_log_prob, log_probs)):
            raise LostError("a completion without the log-probabilities of its prompt")
        return log_probs

    def likeliest(self, name: str, prompt: TokenIds, temperature: float) -> dict[str, float]:
        """The five likeliest next tokens, and perhaps another one: log p as the server reports it at a temperature."""
        as_ids = {"return_tokens_as_token_ids": True}  # several tokens may have one text
        choice = self._complete(name, prompt, temperature=temperature, max_tokens=1, logprobs=5, **as_ids)
        match choice:
            case {"logprobs": {"top_logprobs": [{**likely}]}} if all(map(_is_log_prob, likely.values())):
                return {str(token): float(cast(float, log_prob)) for token, log_prob in likely.items()}
        raise LostError("a completion without its likeliest tokens")

    def _complete(self, name: str, prompt: TokenIds, **settings: Any) -> Mapping[str, Any]:
        """The one choice of a completion. Its answer must repeat the name of the adapter and the token ids of the prompt."""
        plainly = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # not those of the base's generation config
        body = {"model": name, "prompt": prompt, "return_token_ids": True, **plainly, **settings}
        try:
            answer = self._ask("POST", "/v1/completions", body)
        except _MissingError as error:
            raise LostError(str(error)) from error
        match answer:
            case {"model": str(of_model), "choices": [{"prompt_token_ids": [*ids]} as choice]}:
                if of_model == name and tuple(ids) == prompt:
                    return dict(choice)
        raise LostError("a completion of another model or prompt")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of an answer, or its text."""
        parts, key = urlsplit(self.url), server_key()
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection = kind(str(parts.hostname), parts.port, timeout=self.timeout)
        try:
            connection.request(method, parts.path.rstrip("/") + path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return self._read(response, key)
        except (OSError, HTTPException) as error:
            raise LostError(f"no response ({type(error).__name__})") from error
        finally:
            connection.close()

    def _read(self, response: HTTPResponse, key: str) -> Any:
        text = response.read().decode("utf-8", errors="replace")
        if response.status == 200:
            try:
                return json.loads(text)
            except ValueError:
                return text
        why = f"HTTP {response.status}: {without_key(plain(_message(text)), key)[:200]}"
        if response.status == 404:
            raise _MissingError(why)
        if response.status == 500:
            raise _FailedError(why)
        if response.status in (408, 429) or response.status > 500:
            raise LostError(why)
        raise UserError(
            f"the server {self.url!r} refuses a request ({why}): expected vLLM, started with {START}, "
            f"and its key, if it has one, in {KEY_VARIABLE}"
        )


_NO_ROUTE = "HTTP 404: Not Found"
"""What is said of a route that a server does not have; of an adapter that it does not have, vLLM says more."""


class _MissingError(Exception):
    """A server does not know an adapter, or a route."""


def _message(text: str) -> str:
    """The message of an error as vLLM writes it, or the text as it is."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    match values:
        case {"error": {"message": str(message)}} | {"message": str(message)} | {"detail": str(message)}:
            return message
    return text


def _is_log_prob(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and -1e9 < value < 1e-3  # false for NaN


def parse_servers(text: str) -> list[VllmServer]:
    """The servers of `vllm:URL[,URL…]`.

    Raises:
        UserError: it is not of this form, names a server twice, or holds a secret.

    >>> [server.url for server in parse_servers("vllm:http://localhost:8000,http://localhost:8001/v1")]
    ['http://localhost:8000', 'http://localhost:8001']
    """
    kind, _, rest = text.partition(":")
    urls = [url.rstrip("/").removesuffix("/v1") for url in rest.split(",")]
    if kind != "vllm" or not all(is_http(url) and not {"@", "?", "#"} & {*url} for url in urls) or len({*urls}) < len(urls):
        shown = text if "@" not in text and "?" not in text else "vllm:***"
        raise UserError(
            f"acting = {shown!r}: expected vllm:URL, or several, each once, as in vllm:http://localhost:8000,http://localhost:8001"
            f"; a key belongs in {KEY_VARIABLE}, not in the URL"
        )
    return [VllmServer(url=url) for url in urls]
