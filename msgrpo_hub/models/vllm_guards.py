"""Is what a vLLM server computes what it was told to? Its log-probabilities of fixed texts, compared with the trainer's own.

A server may have another base or tokenizer, may not apply the adapter, may still answer with an older version of it, or may
report log-probabilities of another distribution than the one it samples from. Each of these has been seen, and none is an error
of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.vllm_server import START, VllmServer

LARGEST_DISTANCE = 0.25
"""Root mean square, in nats, by which log-probabilities of a probe may differ; bfloat16 makes about a tenth of it."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the adapter, and what the trainer computes with it."""

    name: str
    """What the servers call it; no other version has it."""
    path: str
    """Its folder."""
    expected: FloatArray
    """log p of the tokens of all probes, in nats."""
    others: Mapping[str, FloatArray] = field(default_factory=dict)
    """The same of weights that a server must not answer with, each by what it is."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Texts that every server is asked about, rendered and as token ids."""

    texts: Sequence[str]
    token_ids: Sequence[TokenIds]
    longest: int = 0
    """Tokens of the longest prompt to expect, with its reply."""

    def check_server(self, server: VllmServer) -> None:
        """Checks what does not change with the adapter: that this is vLLM, with our tokenizer, and long prompts fit.

        Raises:
            UserError: one of these does not hold.
        """
        if (limit := server.max_model_len()) < self.longest:
            raise UserError(
                f"the server {server.url!r} takes {limit} tokens of a prompt with its reply, and the longest to expect have "
                f"{self.longest}: start it with --max-model-len {self.longest} or more"
            )
        for text, ours in zip(self.texts, self.token_ids, strict=True):
            theirs = server.tokenize(text)
            if theirs != ours:
                at = next((k for k, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
                raise UserError(
                    f"the tokenizer of {server.url!r} is not that of the base: token {at} of a prompt differs "
                    f"({len(theirs)} tokens there, {len(ours)} here); expected the same base"
                )

    def check_version(self, server: VllmServer, version: Version) -> None:
        """Checks that a server computes with this version. Raises `UserError` otherwise."""
        given = np.concatenate([server.score(version.name, ids) for ids in self.token_ids])
        check_version(given, version, server.url)
        at_one, at_two = (server.likeliest(version.name, self.token_ids[0], temperature) for temperature in (1.0, 2.0))
        check_temperature(at_one, at_two, server.url)


def check_version(given: FloatArray, version: Version, url: str) -> None:
    """Compares a server's log-probabilities of the probes, (N,), with those of the version and of other weights.

    Raises:
        UserError: they are far from the version's, or nearer to those of other weights.
    """
    for what, other in version.others.items():
        if is_other(given, version.expected, other):
            raise UserError(
                f"the server {url!r} answers with {what}, not with the version {version.name!r} that it was given: "
                "restart it, and continue with --resume"
            )
    distance = float(np.sqrt(np.mean((given - version.expected) ** 2)))
    if not distance <= LARGEST_DISTANCE:
        raise UserError(
            f"the server {url!r} computes other log-probabilities than the base with the adapter: they are {distance:.3g} nats "
            f"apart (root mean square); expected at most {LARGEST_DISTANCE}, and so the same base"
        )


def is_other(given: FloatArray, expected: FloatArray, other: FloatArray) -> bool:
    """Whether given log-probabilities are those of other weights, as far as rounding lets one tell; (N,) each.

    Along the way from `other` (0) to `expected` (1), where do they lie? What points in other directions is rounding, and says how
    certain that is.

    >>> new, old = np.array([-1.0, -2.0, -3.0, -0.5]), np.array([-1.1, -1.8, -3.1, -0.6])
    >>> is_other(old + 0.01, new, old), is_other(new + 0.01, new, old), is_other(old, old, old)
    (True, False, False)
    """
    way = expected - other
    length = float(way @ way)
    if length == 0:
        return False
    at = float((given - other) @ way) / length
    rounding = given - other - at * way
    uncertainty = float(np.sqrt(np.mean(rounding**2) / length))
    return at < 0.5 and uncertainty < (0.5 - at) / 3


def check_temperature(at_one: Mapping[str, float], at_two: Mapping[str, float], url: str) -> None:
    """Checks that log-probabilities are those of the distribution that is sampled from, its temperature included.

    Args:
        at_one: token → log p at temperature 1, of the likeliest tokens.
        at_two: the same at temperature 2, where their distances must be half of those.
        url: of the server.
    """
    tokens = sorted(at_one.keys() & at_two.keys(), key=lambda token: at_one[token])
    one, two = (log_probs[tokens[-1]] - log_probs[tokens[0]] if tokens else 0.0 for log_probs in (at_one, at_two))
    if abs(two - one / 2) > abs(two - one):
        raise UserError(
            f"the server {url!r} reports log-probabilities without the temperature: expected those of the distribution that it "
            f"samples from; start it with {START}"
        )
