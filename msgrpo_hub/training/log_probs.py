"""log p of the tokens to learn from: the model's body once over a pack, its head in chunks.

With a vocabulary of 150,000 the logits are by far the largest tensor of an update. They are computed only where a reply
token is predicted, a chunk at a time, and again in the backward pass, so that no two chunks are ever there together.
"""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import TRAINING, attention_of, base_of
from msgrpo_hub.models.token_tree import prefix_inputs
from msgrpo_hub.training.batch import Pack

CHUNK_BYTES = 2**28
"""Of the float32 logits of a chunk."""


def token_log_probs(model: PreTrainedModel | PeftModel, packed: Pack, temperature: float) -> Tensor:
    """(K,) log p(target | its context), in float32, under the distribution that acting samples from."""
    base = base_of(model)
    inputs = prefix_inputs(packed.prefix, packed.trees, model.dtype, model.device)
    slots, rows = packed.slots.to(model.device).unique(return_inverse=True)
    targets = packed.targets.to(model.device)
    with attention_of(model, TRAINING):
        body_output = base.base_model(**inputs, use_cache=False)
    hidden = body_output.last_hidden_state[0, slots]
    size = max(1, CHUNK_BYTES // (4 * base.config.get_text_config().vocab_size))

    def of_chunk(chunk: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        logits = _head(base, body_output, chunk).float() / (temperature or 1.0)
        return logits[rows, targets] - logits.logsumexp(-1)[rows]

    chosen, log_probs = [], []
    for number, chunk in enumerate(hidden.split(size)):
        mine = (rows // size == number).nonzero()[:, 0]
        chosen.append(mine)
        given = chunk, rows[mine] - number * size, targets[mine]
        log_probs.append(cast(Tensor, checkpoint(of_chunk, *given, use_reentrant=False, preserve_rng_state=False)))
    return torch.cat(log_probs)[torch.cat(chosen).argsort()]


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
