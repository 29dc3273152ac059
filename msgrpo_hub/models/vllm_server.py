"""One vLLM server over HTTP: token ids in, token ids with log-probabilities out, LoRA adapters by name, and its checks.

A server may have another base or tokenizer, ignore the adapter, keep sampling from an older version of it, or report
log-probabilities of another distribution than it samples from. None of these is an error of a request, so the log-probabilities
of fixed texts are compared with the trainer's own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from msgrpo_hub.downloads.names import is_http
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.http_client import KEY_VARIABLE, RequestError, request
from msgrpo_hub.models.sampling import TokenIds

START = (
    "`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve BASE --enable-lora --max-lora-rank R --logprobs-mode processed_logprobs`"
)
"""The command that starts a server."""

LARGEST_DISTANCE = 0.25
"""Largest root-mean-square difference of a probe's log-probabilities, in nats; bfloat16 causes about a tenth of it."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reply:
    """A sampled reply."""

    token_ids: TokenIds
    log_probs: tuple[float, ...]
    """log p of each token under the distribution that it was sampled from."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the adapter, with the trainer's log-probabilities."""

    name: str
    """Its name on the servers; no other version has it."""
    path: str
    """Its folder."""
    expected: FloatArray
    """log p of the tokens of all probes, in nats."""
    others: Mapping[str, FloatArray] = field(default_factory=dict)
    """The same for weights that a server must not sample from, such as the base without adapter, by description."""


@dataclass(frozen=True, kw_only=True)
class VllmServer:
    """A vLLM server. The object holds no key and no connection.

    Every method raises `RequestError` if the server gives no valid response, and `UserError` if it refuses a request for good.
    """

    url: str
    """Scheme, host and port, such as http://localhost:8000, optionally with a path before `/v1`."""
    timeout: float = field(default=300.0, compare=False)
    """Seconds without a byte after which a request fails. The longest reply of a busy server must fit in."""

    def max_model_len(self) -> int:
        """The largest number of tokens of a prompt with its reply. Raises `UserError` if this is not a vLLM server."""
        match self._ask("GET", "/v1/models", or_none=True):
            case {"data": [{"owned_by": "vllm", "max_model_len": int(length)}, *_]}:
                return length
        raise UserError(f"the server {self.url!r} is not vLLM: expected one, started with {START}")

    def load(self, name: str, path: str) -> None:
        """Loads an adapter under a name. The folder must have the same path on the server's machine."""
        try:
            self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        except RequestError as error:
            if error.status not in (404, 500):
                raise
            self.check_health()  # healthy: no updating, another disk, a rank that is too large, or LoRA is off
            raise UserError(
                f"the server {self.url!r} cannot load the adapter in {path!r} ({error}): expected one started with {START} that "
                "sees this folder under the same path"
            ) from error

    def check_health(self) -> None:
        """Raises `RequestError` unless the server reports within ten seconds that it is healthy."""
        request("GET", f"{self.url}/health", timeout=min(10.0, self.timeout), direct=True)

    def unload(self, name: str) -> None:
        """Unloads an adapter; a missing one is not an error."""
        self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name}, or_none=True)

    def sample(self, name: str, prompt: TokenIds, *, temperature: float, max_new_tokens: int, end_ids: Collection[int]) -> Reply:
        """Samples one reply with a loaded adapter. The server's own sampling defaults have no effect."""
        choice = self._complete(
            name,
            prompt,
            temperature=temperature,
            max_tokens=max_new_tokens,
            stop_token_ids=sorted(end_ids),
            ignore_eos=True,  # of the server's tokenizer; the line above lists ours
            logprobs=0,
        )
        match choice:
            case {"token_ids": [_, *_] as ids, "logprobs": {"token_logprobs": [*log_probs]}, "finish_reason": "stop" | "length"}:
                ended = ids[-1] in end_ids or len(ids) == max_new_tokens
                if ended and len(ids) == len(log_probs) and _are_log_probs(log_probs):
                    return Reply(tuple(ids), tuple(map(float, log_probs)))
        raise RequestError("a completion without its token ids and log-probabilities")

    def score(self, name: str, token_ids: TokenIds) -> list[float]:
        """log p of each token after the first, given those before it, at temperature 1."""
        choice, log_probs = self._complete(name, token_ids, temperature=1.0, max_tokens=1, prompt_logprobs=0), [math.nan]
        with suppress(KeyError, TypeError, ValueError):
            scores = choice["prompt_logprobs"][1:]
            log_probs = [given[str(token)]["logprob"] for given, token in zip(scores, token_ids[1:], strict=True)]
        if not _are_log_probs(log_probs):
            raise RequestError("a completion without the log-probabilities of its prompt")
        return log_probs

    def top_tokens(self, name: str, prompt: TokenIds, temperature: float) -> dict[str, float]:
        """The five most likely next tokens and the sampled one → log p as reported at a temperature."""
        as_ids = {"return_tokens_as_token_ids": True}  # several tokens may have the same text
        choice = self._complete(name, prompt, temperature=temperature, max_tokens=1, logprobs=5, **as_ids)
        match choice:
            case {"logprobs": {"top_logprobs": [{**likely}]}} if _are_log_probs([*likely.values()]):
                return {str(token): float(cast(float, log_prob)) for token, log_prob in likely.items()}
        raise RequestError("a completion without its most likely tokens")

    def _complete(self, name: str, prompt: TokenIds, **settings: Any) -> Mapping[str, Any]:
        """The choice of a completion, which must repeat the name of the adapter and the token ids of the prompt."""
        defaults = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # override the base's generation config
        body = {"model": name, "prompt": prompt, "return_token_ids": True, **defaults, **settings}
        match self._ask("POST", "/v1/completions", body):
            case {"model": model, "choices": [{"prompt_token_ids": [*ids]} as choice]} if model == name and tuple(ids) == prompt:
                return dict(choice)
        raise RequestError("a completion of another model or prompt")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, or_none: bool = False) -> Any:
        """The JSON of a response, or its text; with `or_none`, None for status 404."""
        try:
            return request(method, self.url + path, body, timeout=self.timeout, direct=True)
        except RequestError as error:
            if error.status == 404 and or_none:
                return None
            if error.is_temporary or error.status == 404:
                raise
            raise UserError(
                f"the server {self.url!r} refuses a request ({error}): expected vLLM, started with {START}, "
                f"and its key, if it has one, in {KEY_VARIABLE}"
            ) from error


def _are_log_probs(values: Sequence[object]) -> bool:
    return all(isinstance(value, float | int) and -1e9 < value < 1e-3 for value in values)


def parse_servers(text: str) -> list[VllmServer]:
    """The servers of `vllm:URL[,URL…]`. Raises `UserError` if the text has another form, a server twice, or a secret.

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


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Texts that every server is checked with, as token ids."""

    token_ids: Sequence[TokenIds]
    longest: int = 0
    """Tokens of the longest expected prompt with its reply."""

    def check_server(self, server: VllmServer) -> None:
        """Checks that a server is vLLM and takes long enough prompts. Raises `UserError` otherwise."""
        if (limit := server.max_model_len()) < self.longest:
            raise UserError(
                f"the server {server.url!r} takes {limit} tokens of a prompt with its reply, and the longest to expect have "
                f"{self.longest}: start it with --max-model-len {self.longest} or more"
            )

    def check_version(self, server: VllmServer, version: Version) -> None:
        """Checks that a server samples from a version of the adapter. Raises `UserError` otherwise."""
        given = np.concatenate([server.score(version.name, ids) for ids in self.token_ids])
        check_log_probs(given, version, server.url)
        at_one, at_two = (server.top_tokens(version.name, self.token_ids[0], temperature) for temperature in (1.0, 2.0))
        check_temperature(at_one, at_two, server.url)


def check_log_probs(given: FloatArray, version: Version, url: str) -> None:
    """Compares a server's log-probabilities of the probes, (N,), with the version's and with other weights.

    Raises `UserError` if they are far from the version's, or closer to other weights.
    """
    for what, other in version.others.items():
        if is_other(given, version.expected, other):
            raise UserError(
                f"the server {url!r} answers with {what}, not with the version {version.name!r} that it was given: "
                "restart it, and continue with --resume"
            )
    distance = float(np.sqrt(np.mean((given - version.expected) ** 2)))
    if not distance <= LARGEST_DISTANCE:  # also if it is NaN
        raise UserError(
            f"the server {url!r} computes other log-probabilities than the base with the adapter: they are {distance:.3g} nats "
            f"apart (root mean square); expected at most {LARGEST_DISTANCE}, so the same base"
        )


def is_other(given: FloatArray, expected: FloatArray, other: FloatArray) -> bool:
    """Whether log-probabilities come from other weights, as far as rounding allows the distinction; (N,) each.

    Projects `given` onto the line from `other` (0) to `expected` (1). The residual estimates the rounding, and with it the
    standard error of the position on the line.

    >>> new, old = np.array([-1.0, -2.0, -3.0, -0.5]), np.array([-1.1, -1.8, -3.1, -0.6])
    >>> is_other(old + 0.01, new, old), is_other(new + 0.01, new, old), is_other(old, old, old)
    (True, False, False)
    """
    line = expected - other
    squared = float(line @ line)
    if squared == 0:
        return False
    position = float((given - other) @ line) / squared
    rounding = given - other - position * line
    error = float(np.sqrt(np.mean(rounding**2) / squared))
    return position < 0.5 and error < (0.5 - position) / 3


def check_temperature(at_one: Mapping[str, float], at_two: Mapping[str, float], url: str) -> None:
    """Checks that reported log-probabilities include the temperature. Raises `UserError` otherwise.

    The arguments map the most likely tokens to log p at temperature 1 and at temperature 2, which must halve the differences.
    """
    tokens = sorted(at_one.keys() & at_two.keys(), key=lambda token: at_one[token])
    one, two = (log_probs[tokens[-1]] - log_probs[tokens[0]] if tokens else 0.0 for log_probs in (at_one, at_two))
    if abs(two - one / 2) > abs(two - one):
        raise UserError(
            f"the server {url!r} reports log-probabilities without the temperature: expected those of the distribution that it "
            f"samples from; start it with {START}"
        )
