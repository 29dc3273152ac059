"""Token batches, which training learns from, and the log-probability of each of their tokens.

The only builder of batches is `token_batch`. A batch is a prefix that all sequences start with, and token trees that continue it
(`token_tree`). The model's body computes a batch once and its head in chunks: with a vocabulary of 150,000 the logits are by far
the largest tensor of an update. They are computed only where a reply token is predicted, one chunk at a time, and again in the
backward pass, so that no two chunks exist at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import TRAINING, attention_of, base_of
from msgrpo_hub.models.devices import sixteen_bits
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.token_tree import IntArray, TokenTree, build_tree, prefix_inputs, tree_inputs

# Shapes: N generated tokens, K distinct ones.

CHUNK_BYTES = 2**26
"""Size of the float32 logits of a chunk: 111 tokens with a vocabulary of 150,000, little beside the weights of such a model."""

Pair = tuple[TokenIds, TokenIds]
"""A prompt and its reply."""


@dataclass(frozen=True)
class TokenBatch:
    """A common prefix, the trees that continue it, and the K distinct generated tokens."""

    prefix: TokenIds
    trees: list[TokenTree]
    slots: Tensor
    """(K,) the position, in the sequence of `prefix_inputs`, whose output predicts each token."""
    targets: Tensor
    """(K,) the tokens."""


def token_batch(bins: Sequence[Sequence[Pair]], prefix: int) -> tuple[TokenBatch, IntArray]:
    """Packs prompts with replies. Tokens of one tree with the same context are computed once.

    Args:
        bins: the pairs of each tree.
        prefix: number of tokens that all prompts share; fewer than any prompt has. If 0 and each bin holds one pair, the batch
            can also be computed as padded rows.

    Returns:
        The batch, and for each generated token, in the order of the bins, which of the K tokens it is, (N,).

    >>> batch, index = token_batch([[((1, 2), (3, 4)), ((1, 2), (3, 5))]], prefix=1)
    >>> batch.trees[0].token_ids.tolist(), batch.slots.tolist(), batch.targets.tolist(), index.tolist()
    ([2, 3, 4, 5], [1, 2, 2], [3, 4, 5], [0, 1, 0, 2])
    """
    trees = [build_tree([(prompt + reply)[prefix:] for prompt, reply in pairs]) for pairs in bins]
    length = max(map(len, trees))
    pairs = [pair for of_tree in bins for pair in of_tree]
    paths = [prefix + number * length + path for number, tree in enumerate(trees) for path in tree.paths]
    starts = [len(prompt) - prefix for prompt, _ in pairs]
    generated = np.concatenate([path[start:] for path, start in zip(paths, starts, strict=True)])
    predicting = np.concatenate([path[start - 1 : -1] for path, start in zip(paths, starts, strict=True)])
    targets = np.concatenate([reply for _, reply in pairs])
    _, first, index = np.unique(generated, return_index=True, return_inverse=True)
    slots, distinct = torch.from_numpy(predicting[first]), torch.from_numpy(targets[first])
    return TokenBatch(pairs[0][0][:prefix], trees, slots, distinct), index


def token_log_probs(
    model: PreTrainedModel | PeftModel, batch: TokenBatch, temperature: float, *, tree: bool = True, split_head: bool = True
) -> Tensor:
    """(K,) log p(target | its context), in float32, under the distribution that sampling uses.

    Args:
        model: a causal language model.
        batch: the tokens; without `tree`, its prefix is empty and each of its trees is one sequence.
        temperature: divides the logits; 0 counts as 1.
        tree: whether the model attends along trees, or computes each sequence as a padded row through its own attention.
        split_head: whether its head can be computed apart from its body; otherwise all logits exist at once.
    """
    base = base_of(model)
    slots, rows = batch.slots.to(model.device).unique(return_inverse=True)
    targets = batch.targets.to(model.device)
    part = base.base_model if split_head else base
    with sixteen_bits(model):
        if tree:
            inputs = prefix_inputs(batch.prefix, batch.trees, model.dtype, model.device)
            with attention_of(model, TRAINING):
                output = part(**inputs, use_cache=False)
        else:  # padded on the right: later tokens do not change earlier ones
            assert not batch.prefix
            output = part(input_ids=tree_inputs(batch.trees, model.device)["input_ids"], use_cache=False)

    if not split_head:
        logits = output.logits.flatten(0, 1)[slots].float()
        return torch.log_softmax(logits / (temperature or 1.0), -1)[rows, targets]
    hidden = output.last_hidden_state.flatten(0, 1)[slots]
    size = max(1, CHUNK_BYTES // (4 * base.config.get_text_config().vocab_size))
    chosen, log_probs = [], []

    def of_chunk(chunk: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        logits = _head(base, output, chunk).float()
        return torch.log_softmax(logits / (temperature or 1.0), -1)[rows, targets]

    for number, chunk in enumerate(hidden.split(size)):
        mine = (rows // size == number).nonzero()[:, 0]
        chosen.append(mine)
        log_probs.append(checkpoint(of_chunk, chunk, rows[mine] - number * size, targets[mine], use_reentrant=False))
    return torch.cat(log_probs)[torch.cat(chosen).argsort()]


def _head(base: PreTrainedModel, body_output: Any, hidden: Tensor) -> Tensor:
    """The logits of some hidden states, (tokens, vocabulary), with everything this model does to them (such as softcapping).

    Calls the model with a body that returns the given states.

    Args:
        base: a causal language model.
        body_output: the output of its body.
        hidden: (tokens, width) some of the last hidden states.
    """
    name, body, output = base.base_model_prefix, base.base_model, copy(body_output)
    output["last_hidden_state"] = hidden[None]
    fixed = nn.Module()
    fixed.forward = lambda *_, **__: output
    setattr(base, name, fixed)
    try:
        logits: Tensor = base(inputs_embeds=hidden[None], use_cache=False).logits
    finally:
        setattr(base, name, body)
    return logits[0]
