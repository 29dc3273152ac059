"""Attention over a shared prefix: the keys and values of the rules exist once, and each row adds only its own.

In a standard cache each row holds a copy of the rules, and every decoding step reads and extends all copies. Here a query
attends to two parts in one softmax: the shared keys (without a batch dimension) and the keys of its row. Sampling keeps
the shared prefix in a cache. Training computes the prefix in the same pass, so that gradients flow through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

# Shapes: U rows, H query heads, J key heads, Q queries, P shared keys, L own keys, D head dimension.

ACTING = "msgrpo_shared_prefix"
TRAINING = "msgrpo_tree"
"""Names of the two implementations in transformers' attention interface."""


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

    With several queries per row, the shared keys are copied to each row for one fused kernel. For single-token queries
    (decoding steps) the copy would dominate, so matrix products read the shared keys in place.

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
    groups = key.shape[1]
    if queries != 1 and softcap is None:  # fused kernels have no softcap
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
    whole = torch.softmax(torch.cat(scores, -1), -1, dtype=torch.float32).to(value.dtype)
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
    shared_prefix: Cache | None = None,
    query_positions: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of sampling, for transformers' attention interface.

    `shared_prefix` holds the keys and values of the prefix, in one row; `query_positions`, (U, Q), count from its start. A row's
    own keys are consecutive positions, and its queries are the last of them.
    """
    shared = None
    if shared_prefix is not None:
        layer: Any = shared_prefix.layers[cast(int, module.layer_idx)]
        shared = layer.keys[0], layer.values[0]
    prefix, own = 0 if shared is None else shared[0].shape[1], key.shape[2]
    shared_mask = None
    if sliding_window and prefix + own > sliding_window:
        slots = torch.arange(own, device=query.device)
        window = beyond_window(slots[own - query.shape[2] :], slots, sliding_window, query.dtype)
        attention_mask = torch.minimum(attention_mask, window)  # the sum of two masks would overflow
        if shared_prefix is not None and query_positions is not None:
            places = torch.arange(prefix, device=query.device)
            shared_mask = beyond_window(query_positions, places, sliding_window, query.dtype)[:, None]
    mixed = attend(query, key, value, attention_mask, shared, scaling, softcap, shared_mask, s_aux)
    return mixed.transpose(1, 2).contiguous(), None


def tree_attention(
    module: torch.nn.Module,  # noqa: ARG001
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    tree_positions: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of training: one sequence is a prefix of P tokens followed by B branches of L tokens each.

    The prefix is causal. A branch attends to the whole prefix, and to itself under its own mask, (B, 1, L, L) additive.
    `tree_positions`, (B, L), are the positions of its tokens; a layer with a sliding window needs them.
    """
    branches, _one, length, _same = attention_mask.shape
    prefix = query.shape[2] - branches * length
    first_q, first_k, first_v = (states[:, :, :prefix] for states in (query, key, value))
    rest_q, rest_k, rest_v = (
        states[0, :, prefix:].unflatten(1, (branches, length)).transpose(0, 1) for states in (query, key, value)
    )
    keys = torch.arange(prefix, device=query.device)
    causal = additive(keys[:, None] >= keys, query.dtype)
    shared_mask = None
    if sliding_window and tree_positions is not None and prefix + length > sliding_window:
        causal = torch.minimum(causal, beyond_window(keys, keys, sliding_window, query.dtype))
        shared_mask = beyond_window(tree_positions, keys, sliding_window, query.dtype)[:, None] if prefix else None
        window = beyond_window(tree_positions, tree_positions, sliding_window, query.dtype)[:, None]
        attention_mask = torch.minimum(attention_mask, window)
    shared = (first_k[0], first_v[0]) if prefix else None
    prefix_output = attend(first_q, first_k, first_v, causal[None, None], None, scaling, softcap, sinks=s_aux)
    branch_output = attend(rest_q, rest_k, rest_v, attention_mask, shared, scaling, softcap, shared_mask, s_aux)
    flat = branch_output.transpose(0, 1).reshape(1, query.shape[1], -1, query.shape[3])
    return torch.cat([prefix_output, flat], 2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ACTING, shared_prefix_attention)
AttentionInterface.register(TRAINING, tree_attention)


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
