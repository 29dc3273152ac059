"""The engine against plain forward passes of one model: replies, log-probabilities and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from msgrpo_hub.episode import Completion
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.engine_check import eager
from msgrpo_hub.models.sampling import Sample, TokenIds
from msgrpo_hub.training.adapter import new_lora, without_dropout
from msgrpo_hub.training.batch import TREE_SIZE, StepSample, pack, signed_sums
from tests.families import VOCABULARY, tiny_model

END = frozenset(range(250, VOCABULARY))
"""Many end tokens, so that random models end their replies at many lengths."""
NEW_TOKENS = 6


def measure(family: str, **options: Any) -> dict[str, Any]:
    """The engine of a tiny model and its largest errors against one uncached forward pass per sequence.

    Returns:
        `engine`; `acting` and `training`, errors of log-probabilities in nats; `gradient`, the error of LoRA's
        gradient relative to its largest entry.
    """
    model = tiny_model(family, **options)
    engine = Engine(model, END)
    prompts = some_prompts()
    samples = engine.sample(prompts, [np.random.default_rng(i) for i in range(len(prompts))], 1.0, NEW_TOKENS)
    name = engine.choose(prompts[0], NEW_TOKENS).name
    return {"engine": name, "acting": acting_error(model, samples), **training(model, samples)}


def some_prompts() -> list[TokenIds]:
    """Eight prompts of four lengths with a common prefix; four of them are distinct."""
    rng = np.random.default_rng(0)
    head = tuple(rng.integers(0, 250, 6).tolist())
    distinct = [head + tuple(rng.integers(0, 250, length).tolist()) for length in (3, 9, 5, 1)]
    return [distinct[i] for i in (0, 1, 0, 2, 0, 3, 1, 0)]


def plain_log_probs(model: Any, prompt: Sequence[int], reply: Sequence[int]) -> Tensor:
    """log p of the tokens of a reply, from one forward pass without a cache, with a gradient."""
    ids = torch.tensor([[*prompt, *reply]])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(reply)[:, None])[:, 0]


@torch.no_grad()
def acting_error(model: Any, samples: Sequence[Sample]) -> float:
    """The largest difference of a log-probability that was recorded while acting."""
    with eager(model):
        plain = [plain_log_probs(model, sample.prompt_ids, sample.token_ids) for sample in samples]
    return max(
        (expected - torch.tensor(sample.log_probs)).abs().max().item() for sample, expected in zip(samples, plain, strict=True)
    )


def training(base: Any, samples: Sequence[Sample]) -> dict[str, float]:
    """Log-probabilities and gradients of LoRA on all linear layers, against one forward pass for each sequence."""
    without_dropout(base)
    model = new_lora(base, rank=2, alpha=4)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    engine = Engine(model, END)
    pairs = sorted({(sample.prompt_ids, tuple(sample.token_ids)) for sample in samples}, key=lambda pair: pair[0] + pair[1])
    shared = engine.shares_prefixes(max((prompt for prompt, _ in pairs), key=len), NEW_TOKENS)
    replies = [Completion(text="", prompt_ids=p, token_ids=r, log_probs=(0.0,) * len(r)) for p, r in pairs]
    [packed] = pack([StepSample(reply, signed_sums(0.0, 1.0)) for reply in replies], 10**6, TREE_SIZE if shared else 0)
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with engine.learning():
        ours = engine.log_probs(packed, 1.0)
        ours_gradient = torch.autograd.grad(ours.sum(), list(weights.values()), allow_unused=True)
    plain = {pair: plain_log_probs(model, *pair) for pair in pairs}
    tokens = [(p, r, k) for p, r in pairs for k in range(len(r))]
    if shared:  # equal contexts are computed once
        tokens = list({p + r[: k + 1]: (p, r, k) for p, r, k in tokens}.values())
    expected = torch.stack([plain[p, r][k] for p, r, k in tokens])
    gradient = torch.autograd.grad(expected.sum(), list(weights.values()), allow_unused=True)
    largest = max(part.abs().max().item() for part in gradient if part is not None)
    differences = [
        (a - b).abs().max().item() for a, b in zip(ours_gradient, gradient, strict=True) if a is not None and b is not None
    ]
    log_probs = (ours.sort().values - expected.sort().values).abs().max().item()
    return {"training": log_probs, "gradient": max(differences) / largest}
