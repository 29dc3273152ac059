"""Attention over a shared prefix: the keys and values of the rules exist once, and each row adds only its own.

In a standard cache each row holds a copy of the rules, and every decoding step reads (and extends) all copies. Here a query
attends to two parts in one softmax: the shared keys, which have no batch dimension, and the keys of its row. Acting keeps
the shared prefix in a cache. Training computes the prefix in the same pass, so that gradients flow through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from msgrpo_hub.errors import UserError

# Shapes: U rows, H query heads, J key heads, Q queries, P shared keys, L own keys, D head dimension.

ACTING = "msgrpo_shared_prefix"
TRAINING = "msgrpo_tree"


class RowLayer(DynamicLayer):
    """Keys and values of one layer, (U, J, L, D), in buffers with spare capacity, so that a step copies nothing."""

    is_sliding = False

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if not start:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [self._widened(states, 0, end) for states in (key_states, value_states)]
        elif end > self._buffers[0].shape[2]:
            self._buffers = [self._widened(buffer, start, end) for buffer in self._buffers]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    @staticmethod
    def _widened(states: Tensor, filled: int, needed: int) -> Tensor:
        rows, heads, _, size = states.shape
        buffer = states.new_empty(rows, heads, needed + max(32, needed // 2), size)
        buffer[:, :, :filled] = states[:, :, :filled]
        return buffer

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        end = self.get_seq_length()
        self._buffers = [buffer.index_select(0, rows.to(buffer.device)) for buffer in self._buffers]  # layers on several GPUs
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


class RowCache(Cache):
    """A KV cache whose rows can fork."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=RowLayer)

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            cast(RowLayer, layer).select(rows)

    def states(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values of one layer, (J, L, D) each, for a cache with one row."""
        keys, values = cast(RowLayer, self.layers[layer]).keys, cast(RowLayer, self.layers[layer]).values
        assert keys is not None
        assert values is not None
        return keys[0], values[0]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    shared: tuple[Tensor, Tensor] | None,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """Softmax attention of each row over the shared keys and its own keys.

    With several queries per row, the shared keys are copied to each row and one fused kernel runs. For single-token queries
    (decoding steps) the copy would dominate, so they read the shared keys in place.

    Args:
        query: (U, H, Q, D).
        key: (U, J, L, D); each of the J key heads serves H / J query heads.
        value: (U, J, L, D).
        mask: (U, 1, Q, L) additive, over each row's own keys; the shared keys are visible to every query.
        shared: keys and values, (J, P, D) each, that all rows share.
        scaling: factor of the scores, by default 1/√D.
        softcap: if given, scores are softcap·tanh(score / softcap).

    Returns:
        (U, H, Q, D).
    """
    rows, heads, queries, size = query.shape
    groups = key.shape[1]
    if queries > 1 and softcap is None:  # the fused kernels do not support softcapping
        if shared is not None:
            key, value = (
                torch.cat([states.expand(rows, -1, -1, -1), own], 2) for states, own in zip(shared, (key, value), strict=True)
            )
            mask = None if mask is None else functional.pad(mask, (shared[0].shape[1], 0))
        key, value = (states.repeat_interleave(heads // groups, 1) for states in (key, value))
        return functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    grouped = query.reshape(rows, groups, -1, size) * (size**-0.5 if scaling is None else scaling)  # (U, J, H/J·Q, D)

    def capped(scores: Tensor) -> Tensor:
        return scores if softcap is None else softcap * torch.tanh(scores / softcap)

    own = capped(grouped @ key.transpose(2, 3))
    if mask is not None:
        own = own + mask.repeat(1, 1, heads // groups, 1)
    if shared is None:
        return (torch.softmax(own, -1, dtype=torch.float32).to(value.dtype) @ value).reshape(rows, heads, queries, size)
    keys, values = shared
    flat = grouped.transpose(0, 1).reshape(groups, -1, size)  # (J, U·H/J·Q, D)
    common = capped(flat @ keys.transpose(1, 2)).reshape(groups, rows, -1, keys.shape[1]).transpose(0, 1)
    weights = torch.softmax(torch.cat([common, own], -1), -1, dtype=torch.float32).to(value.dtype)
    common_weights, own_weights = weights.split([common.shape[-1], own.shape[-1]], -1)
    common_mix = common_weights.transpose(0, 1).reshape(groups, -1, keys.shape[1]) @ values
    mixed: Tensor = common_mix.reshape(groups, rows, -1, size).transpose(0, 1) + own_weights @ value
    return mixed.reshape(rows, heads, queries, size)


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    shared_prefix: RowCache | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention while acting, for transformers' attention interface; `shared_prefix` is a cache with one row."""
    shared = None if shared_prefix is None else shared_prefix.states(cast(int, module.layer_idx))
    mixed = attend(query, key, value, attention_mask, shared, scaling, softcap)
    return mixed.transpose(1, 2).contiguous(), None


def tree_attention(
    module: torch.nn.Module,  # noqa: ARG001
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention while training: one sequence is a prefix of P tokens followed by B branches of L tokens each.

    The prefix is causal. A branch attends to the whole prefix, and to itself under its own mask, (B, 1, L, L) additive.
    """
    branches, _one, length, _same = attention_mask.shape
    prefix = query.shape[2] - branches * length

    def split(states: Tensor) -> tuple[Tensor, Tensor]:
        heads, size = states.shape[1], states.shape[3]
        rows = states[0, :, prefix:].reshape(heads, branches, length, size).transpose(0, 1)
        return states[:, :, :prefix], rows

    (first_q, rest_q), (first_k, rest_k), (first_v, rest_v) = split(query), split(key), split(value)
    causal = torch.full((prefix, prefix), torch.finfo(query.dtype).min, dtype=query.dtype, device=query.device).triu(1)
    shared = (first_k[0], first_v[0]) if prefix else None
    prefix_output = attend(first_q, first_k, first_v, causal[None, None], None, scaling, softcap)
    branch_output = attend(rest_q, rest_k, rest_v, attention_mask, shared, scaling, softcap)
    flat = branch_output.transpose(0, 1).reshape(1, query.shape[1], -1, query.shape[3])
    return torch.cat([prefix_output, flat], 2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ACTING, shared_prefix_attention)
AttentionInterface.register(TRAINING, tree_attention)


@contextmanager
def attention_of(model: PreTrainedModel | PeftModel, name: str) -> Iterator[None]:
    """Switches the attention implementation inside the context and restores the previous one on exit."""
    base = base_of(model)
    before = base.config._attn_implementation
    base.set_attn_implementation(name)
    if base.config._attn_implementation != name:
        raise UserError(f"{type(base).__name__} does not use transformers' attention interface: expected a model that does")
    try:
        yield
    finally:
        base.set_attn_implementation(before)


@contextmanager
def acting(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Evaluation mode with attention over the shared prefix; the previous mode and attention are restored on exit.

    Both switches visit all modules, so play of many turns enters the context once. A nested context does nothing.
    """
    if base_of(model).config._attn_implementation == ACTING:
        yield
        return
    training = model.training
    model.eval()
    try:
        with attention_of(model, ACTING):
            yield
    finally:
        model.train(training)


def base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model, without the PEFT wrapper; LoRA layers stay in place."""
    return cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
