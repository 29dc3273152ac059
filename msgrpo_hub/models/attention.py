"""Attention over a shared prefix: the keys and values of the rules exist once, and each row adds only its own.

In a standard cache each row holds a copy of the rules, and every decoding step reads and extends all copies. Here a query
attends to two parts in one softmax: the shared keys (without a batch dimension) and the keys of its row. Sampling computes the
shared prefix once per version of the weights, training once per optimiser step, with gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from msgrpo_hub.models.devices import sixteen_bits

# Shapes: U rows, H query heads, J key heads, Q queries, P shared keys, L own keys, D head dimension.

SHARED = "msgrpo_shared_prefix"
"""The name of `shared_prefix_attention` in transformers' attention interface."""

States = dict[int, tuple[Tensor, Tensor]]
"""Layer → keys and values of a prefix, (J, P, D) each."""
MOST_SCORES = 2**25
"""Number of attention scores of a layer above which a fused kernel computes them, which keeps none."""


class RowLayer(DynamicLayer):
    """Keys and values of one layer, (U, J, L, D), in buffers with spare capacity, so that a step copies nothing."""

    is_sliding = False
    _buffers: list[Tensor]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if not start:
            self.lazy_initialization(key_states, value_states)
        if not start or end > self._buffers[0].shape[2]:
            filled = self._buffers if start else [key_states[:, :, :0], value_states[:, :, :0]]
            self._buffers = [
                functional.pad(states[:, :, :start], (0, 0, 0, end - start + max(32, end // 2))) for states in filled
            ]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        keys, values = self.keys, self.values = tuple(buffer[:, :, :end] for buffer in self._buffers)
        return keys, values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        end = self.get_seq_length()
        self._buffers = [buffer.index_select(0, beam_idx) for buffer in self._buffers]
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    shared: tuple[Tensor, Tensor] | None,
    scaling: float | None,
    softcap: float | None,
    shared_mask: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Softmax attention of each row over the shared keys and its own keys.

    Matrix products read the shared keys in place. If the scores would take too much memory (`MOST_SCORES`), the shared keys are
    copied to each row for one fused kernel; its backward pass is half as fast on a CPU.

    Args:
        query: (U, H, Q, D).
        key: (U, J, L, D); each of the J key heads serves H / J query heads.
        value: as `key`.
        mask: (U, 1, Q, L) additive, over each row's own keys.
        shared: keys and values, (J, P, D) each, that all rows share.
        scaling: factor of the scores, by default 1/√D.
        softcap: if given, scores are softcap·tanh(score / softcap).
        shared_mask: (U, 1, Q, P) additive, over the shared keys; by default every query attends to all of them.
        sinks: (H,) the score of one more key of each head, whose value is zero (gpt-oss).

    Returns:
        (U, H, Q, D).
    """
    rows, heads, queries, size = query.shape
    groups, length = key.shape[1], key.shape[2] + (0 if shared is None else shared[0].shape[1])
    if rows * heads * queries * length > MOST_SCORES and queries > 1 and softcap is None:  # fused kernels have no softcap
        if shared is not None:
            key, value = (
                torch.cat([states.expand(rows, -1, -1, -1), own], 2) for states, own in zip(shared, (key, value), strict=True)
            )
            before = (shared[0].shape[1], 0)
            mask = functional.pad(mask, before) if shared_mask is None else torch.cat([shared_mask, mask], -1)
        if sinks is not None:  # a key and value of zeros, whose score is the mask's
            key, value = (functional.pad(states, (0, 0, 0, 1)) for states in (key, value))
            column = sinks[None, :, None, None].expand(rows, heads, queries, 1).to(mask.dtype)
            mask = torch.cat([mask.expand(rows, heads, -1, -1), column], -1)
        key, value = (states.repeat_interleave(heads // groups, 1) for states in (key, value))
        return functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    grouped = query.reshape(rows, groups, -1, size) * (size**-0.5 if scaling is None else scaling)  # (U, J, H/J·Q, D)
    scores, masks = [grouped @ key.transpose(2, 3)], [cast(Tensor | None, mask)]
    if shared is not None:
        keys, values = shared
        flat = grouped.transpose(0, 1).reshape(groups, -1, size)  # (J, U·H/J·Q, D)
        common = (flat @ keys.transpose(1, 2)).reshape(groups, rows, -1, keys.shape[1]).transpose(0, 1)
        scores, masks = [common, *scores], [shared_mask, mask]
    if softcap is not None:
        scores = [softcap * torch.tanh(part / softcap) for part in scores]
    for k, hidden in enumerate(masks):
        if hidden is not None:  # for the queries of several heads
            scores[k] = scores[k] + (hidden if queries == 1 else hidden.repeat(1, 1, heads // groups, 1))
    if sinks is not None:
        column = sinks.reshape(1, groups, -1, 1).expand(rows, -1, -1, queries).reshape(rows, groups, -1, 1)
        scores.append(column.to(scores[0].dtype))
    whole = torch.softmax(torch.cat(scores, -1), -1).to(value.dtype)
    weights = whole.split([part.shape[-1] for part in scores], -1)
    mixed = weights[len(masks) - 1] @ value
    if shared is not None:
        common_mix = weights[0].transpose(0, 1).reshape(groups, -1, keys.shape[1]) @ values
        mixed = common_mix.reshape(groups, rows, -1, size).transpose(0, 1) + mixed
    return cast(Tensor, mixed.reshape(rows, heads, queries, size))


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask that is added to attention scores: 0 where `visible`, else the smallest number."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)


def beyond_window(queries: Tensor, keys: Tensor, window: int, dtype: torch.dtype) -> Tensor:
    """An additive mask (..., Q, L) that hides keys `window` or more positions before a query; (..., Q) and (..., L) positions."""
    return additive(queries[..., :, None] - keys[..., None, :] < window, dtype)


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    prefix_states: States | None = None,
    kept_states: States | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of sampling and training, for transformers' attention interface.

    The mask, (U, 1, Q, L) additive, is over a row's own keys. `query_positions`, (U, Q), and `key_positions`, (U, L), by default
    the same, count from the start of the prefix. `kept_states` receives the keys and values.
    """
    layer = cast(int, module.layer_idx)
    if kept_states is not None:
        kept_states[layer] = key[0], value[0]
    shared = prefix_states[layer] if prefix_states else None
    prefix, own, shared_mask = 0 if shared is None else shared[0].shape[1], key.shape[2], None
    if sliding_window and query_positions is not None and prefix + own > sliding_window:
        keys = query_positions if key_positions is None else key_positions
        window = beyond_window(query_positions, keys, sliding_window, query.dtype)[:, None]
        attention_mask = torch.minimum(attention_mask, window)  # the sum of two masks would overflow
        places = torch.arange(prefix, device=query.device)
        shared_mask = beyond_window(query_positions, places, sliding_window, query.dtype)[:, None] if prefix else None
    mixed = attend(query, key, value, attention_mask, shared, scaling, softcap, shared_mask, s_aux)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(SHARED, shared_prefix_attention)


def prefix_states(model: PreTrainedModel | PeftModel, prefix: Sequence[int]) -> States:
    """The keys and values of a prefix of P tokens; none for an empty prefix."""
    states: States = {}
    if prefix:
        ids = torch.tensor([prefix], device=model.device)
        positions = torch.arange(len(prefix), device=model.device)[None]
        causal = additive(positions[:, :, None] >= positions[:, None], model.dtype)[:, None]
        inputs = {"input_ids": ids, "position_ids": positions, "attention_mask": causal, "query_positions": positions}
        with sixteen_bits(model), attention_of(model, SHARED):
            base_of(model).base_model(**inputs, use_cache=False, kept_states=states)
    return states


@contextmanager
def attention_of(model: PreTrainedModel | PeftModel, name: str) -> Iterator[None]:
    """Switches the attention implementation inside the context, and back on exit. A nested context does nothing."""
    before = (base := base_of(model)).config._attn_implementation
    if before == name:
        yield
        return
    with suppress(ValueError):  # a model that cannot be switched; the engine check sees other results
        base.set_attn_implementation(name)
    try:
        yield
    finally:
        base.set_attn_implementation(before)


def base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model, without the PEFT wrapper; LoRA layers stay in place."""
    return cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
