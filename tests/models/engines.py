"""Prompts, samples and models for the tests of the engine, and an oracle: uncached forward passes of one sequence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.models.attention import attention_of
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.sampling import Sample
from tests.tiny import adapted, tiny_model

Ids = tuple[int, ...]
END = frozenset(range(250, 300))
"""Many end tokens, so that random models end their replies at many lengths."""
LIMIT = 10
TOLERANCE = 1e-5
"""Tolerance of a log-probability in float32 at temperature 1; a temperature divides the logits and their rounding errors."""


def some_prompts(seed: int = 0) -> list[Ids]:
    """Eight prompts of unequal length with a common prefix; four of them are distinct."""
    rng = np.random.default_rng(seed)
    head = tuple(rng.integers(0, 250, 6).tolist())
    distinct = [head + tuple(rng.integers(0, 250, length).tolist()) for length in (3, 9, 5, 1)]
    return [distinct[i] for i in (0, 1, 0, 2, 0, 3, 1, 0)]


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, i)) for i in range(count)]


def sampled(engine: Engine, prompts: Sequence[Ids], temperature: float = 0.3, limit: int = LIMIT, seed: int = 0) -> list[Sample]:
    """At a low temperature, so that samples of one prompt diverge late and share rows of the cache."""
    return engine.sample(prompts, generators(len(prompts), seed), temperature, limit)


def adapted_model() -> PeftModel:
    """Two random adapters, `default` (active) and `other`, on a random base."""
    return adapted(tiny_model(vocab_size=300), adapters=("default", "other"))


def plain_log_p(model: Any, prompt: Sequence[int], reply: Sequence[int], temperature: float = 1.0) -> Tensor:
    """log p of all tokens at each position of a reply, (T, V), from one uncached pass of prompt + reply, with a gradient."""
    ids = torch.tensor([[*prompt, *reply]])
    with attention_of(model, "eager"):  # some versions of transformers skip softcapping in other implementations
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.double() / (temperature or 1.0), -1)


def plain_log_probs(model: Any, prompt: Sequence[int], reply: Sequence[int], temperature: float = 1.0) -> Tensor:
    """log p of each token of a reply, (T,), with a gradient."""
    return plain_log_p(model, prompt, reply, temperature).gather(1, torch.tensor(reply)[:, None])[:, 0]


@torch.no_grad()
def naive_reply(model: Any, prompt: Ids, rng: np.random.Generator, temperature: float) -> Ids:
    """One reply by a full forward pass for each token; a token is the inverse of the cumulative distribution."""
    tokens: list[int] = []
    while len(tokens) < LIMIT and not END & set(tokens):
        with attention_of(model, "eager"):
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        cumulative = torch.softmax(logits / temperature, -1).double().numpy().cumsum()
        tokens.append(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")))
    return tuple(tokens)


def assert_same(ours: Sequence[Sample], theirs: Sequence[Sample]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a.prompt_ids, a.token_ids, a.finish) == (b.prompt_ids, b.token_ids, b.finish)
        assert a.log_probs == pytest.approx(b.log_probs, abs=3 * TOLERANCE)  # sampled at temperature 0.3
        assert a.entropies == pytest.approx(b.entropies, abs=1e-4)


def computed_rows(engine: Engine) -> int:
    """The rows passed to the model so far."""
    return engine._forward.rows if engine._forward else 0


def distinct_contexts(samples: Sequence[Sample]) -> int:
    """The number of distinct contexts of sampled tokens; a context is a prompt with a partial reply."""
    return len({(s.prompt_ids, s.token_ids[:k]) for s in samples for k in range(len(s.token_ids))})
