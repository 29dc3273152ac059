"""log p of the tokens to learn from: the model's body once over a batch of trees or rows, its head in chunks.

With a vocabulary of 150,000 the logits are by far the largest tensor of an update. They are computed only where a reply
token is predicted, a chunk at a time, and again in the backward pass, so that no two chunks are ever there together.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Protocol, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import TRAINING, attention_of, base_of
from msgrpo_hub.models.sixteen_bits import in_sixteen_bits
from msgrpo_hub.models.token_tree import TokenTree, prefix_inputs, tree_inputs

CHUNK_BYTES = 2**26
"""Of the float32 logits of a chunk."""


class TokenBatch(Protocol):
    """Trees of tokens on a common prefix, and the tokens to compute."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that all sequences begin with."""

    @property
    def trees(self) -> Sequence[TokenTree]:
        """What continues it."""

    @property
    def slots(self) -> Tensor:
        """(K,) the position, in the sequence of `prefix_inputs`, whose output predicts each token."""

    @property
    def targets(self) -> Tensor:
        """(K,) the tokens."""


def token_log_probs(
    model: PreTrainedModel | PeftModel, batch: TokenBatch, temperature: float, *, tree: bool = True, split_head: bool = True
) -> Tensor:
    """(K,) log p(target | its context), in float32, under the distribution that acting samples from.

    Args:
        model: a causal language model.
        batch: the tokens; without `tree`, its prefix is empty and each of its trees is one sequence.
        temperature: divides the logits; 0 counts as 1.
        tree: whether the model attends along trees, or computes each sequence as a padded row through its own attention.
        split_head: whether its head can be computed apart from its body; otherwise all logits exist at once.
    """
    with in_sixteen_bits(model):
        return _token_log_probs(model, batch, temperature, tree, split_head)


def _token_log_probs(
    model: PreTrainedModel | PeftModel, batch: TokenBatch, temperature: float, tree: bool, split_head: bool
) -> Tensor:
    base = base_of(model)
    slots, rows = batch.slots.to(model.device).unique(return_inverse=True)
    targets = batch.targets.to(model.device)
    part = base.base_model if split_head else base
    if tree:
        inputs = prefix_inputs(batch.prefix, batch.trees, model.dtype, model.device)
        with attention_of(model, TRAINING):
            output = part(**inputs, use_cache=False)
    else:  # padded on the right: what comes later changes nothing
        assert not batch.prefix
        output = part(input_ids=tree_inputs(batch.trees, model.device)["input_ids"], use_cache=False)
    if not split_head:
        logits = _tempered(output.logits.flatten(0, 1)[slots], temperature)
        return torch.log_softmax(logits, -1)[rows, targets]
    hidden = output.last_hidden_state.flatten(0, 1)[slots]
    size = max(1, CHUNK_BYTES // (4 * base.config.get_text_config().vocab_size))

    def of_chunk(chunk: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        logits = _tempered(_head(base, output, chunk), temperature)
        return torch.log_softmax(logits, -1)[rows, targets]

    chosen, log_probs = [], []
    for number, chunk in enumerate(hidden.split(size)):
        mine = (rows // size == number).nonzero()[:, 0]
        chosen.append(mine)
        given = chunk, rows[mine] - number * size, targets[mine]
        log_probs.append(cast(Tensor, checkpoint(of_chunk, *given, use_reentrant=False)))
    return torch.cat(log_probs)[torch.cat(chosen).argsort()]


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    """The logits in float32, divided by the temperature; 0 counts as 1."""
    return logits.float() if temperature in (0, 1) else logits.float() / temperature


class _FixedOutput(nn.Module):
    """Stands where the body of a model stood, and says what it is given."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.output


def _head(base: PreTrainedModel, body_output: Any, hidden: Tensor) -> Tensor:
    """The logits of some hidden states, (tokens, vocabulary), with all that this model does to them (such as softcapping).

    Args:
        base: a causal language model.
        body_output: what its body returned.
        hidden: (tokens, width) some of the last hidden states.
    """
    name, body, output = base.base_model_prefix, base.base_model, copy(body_output)
    output["last_hidden_state"] = hidden[None]
    setattr(base, name, _FixedOutput(output))
    try:
        logits: Tensor = base(inputs_embeds=hidden[None], use_cache=False).logits
    finally:
        setattr(base, name, body)
    return logits[0]
