"""Token batches, which training learns from, and the log-probability of each of their tokens.

The only builder of batches is `token_batch`. A batch is a prefix that all sequences start with, and token trees that continue it
(`token_tree`). The model's body computes a batch once and its head in chunks: with a vocabulary of 150,000 the logits are by far
the largest tensor of an update. They are computed only where a reply token is predicted, one chunk at a time, and again in the
backward pass, so that no two chunks exist at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import SHARED, States, additive, attention_of, base_of, prefix_states
from msgrpo_hub.models.devices import sixteen_bits
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.token_tree import IntArray, TokenTree, build_tree, tree_inputs

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
    """(K,) the position in the padded trees whose output predicts each token."""
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
    ([2, 3, 4, 5], [0, 1, 1], [3, 4, 5], [0, 1, 0, 2])
    """
    trees = [build_tree([(prompt + reply)[prefix:] for prompt, reply in pairs]) for pairs in bins]
    length = max(map(len, trees))
    pairs = [pair for of_tree in bins for pair in of_tree]
    paths = [number * length + path for number, tree in enumerate(trees) for path in tree.paths]
    starts = [len(prompt) - prefix for prompt, _ in pairs]
    generated = np.concatenate([path[start:] for path, start in zip(paths, starts, strict=True)])
    predicting = np.concatenate([path[start - 1 : -1] for path, start in zip(paths, starts, strict=True)])
    targets = np.concatenate([reply for _, reply in pairs])
    _, first, index = np.unique(generated, return_index=True, return_inverse=True)
    slots, distinct = torch.from_numpy(predicting[first]), torch.from_numpy(targets[first])
    return TokenBatch(pairs[0][0][:prefix], trees, slots, distinct), index


def token_log_probs(
    model: PreTrainedModel | PeftModel, batch: TokenBatch, temperature: float, *, tree: bool = True, states: States | None = None
) -> Tensor:
    """(K,) log p(target | its context), in float32, under the distribution that sampling uses.

    Args:
        model: a causal language model.
        batch: the tokens; without `tree`, its prefix is empty and each of its trees is one sequence.
        temperature: divides the logits; 0 counts as 1.
        tree: whether the model attends along trees, or computes each sequence as a padded row through its own attention.
        states: keys and values of the prefix, if they are known.
    """
    base = base_of(model)
    slots, rows = batch.slots.to(model.device).unique(return_inverse=True)
    targets = batch.targets.to(model.device)
    inputs: dict[str, Any] = tree_inputs(batch.trees, model.device)
    if tree:
        places, visible = inputs["position_ids"] + len(batch.prefix), inputs["attention_mask"]
        inputs |= {"position_ids": places, "query_positions": places, "attention_mask": additive(visible, model.dtype)}
        inputs["prefix_states"] = prefix_states(model, batch.prefix) if states is None else states
    else:  # padded on the right: later tokens do not change earlier ones
        assert not batch.prefix
        inputs = {"input_ids": inputs["input_ids"]}
    with sixteen_bits(model), attention_of(model, SHARED) if tree else nullcontext():
        output = base.base_model(**inputs, use_cache=False)
    hidden = output.last_hidden_state.flatten(0, 1)[slots]
    bodies = {base.base_model, getattr(base.base_model, "decoder", base.base_model)}  # OPT and BART call the inner one
    forwards = [(body, body.forward) for body in bodies]

    def of_chunk(chunk: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        """Calls the model with a body that returns these states: its head may do more than a product, such as softcapping."""
        states = copy(output)
        states["last_hidden_state"] = chunk[None]
        for body in bodies:
            body.forward = lambda *_, **__: states
        try:
            logits = base(inputs_embeds=chunk[None], use_cache=False).logits[0].float()
        finally:
            for body, forward in forwards:
                body.forward = forward
        return torch.log_softmax(logits / (temperature or 1.0), -1)[rows, targets]

    size = max(1, CHUNK_BYTES // (4 * base.config.get_text_config().vocab_size))
    chosen, log_probs = [], []
    for number, chunk in enumerate(hidden.split(size)):
        mine = (rows // size == number).nonzero()[:, 0]
        chosen.append(mine)
        log_probs.append(checkpoint(of_chunk, chunk, rows[mine] - number * size, targets[mine], use_reentrant=False))
    return torch.cat(log_probs)[torch.cat(chosen).argsort()]
