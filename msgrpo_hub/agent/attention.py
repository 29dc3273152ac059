"""Attention over a shared beginning: the KV of the rules is kept once, and every row adds only its own tokens.

In the usual cache each row holds its own copy of the rules, and every decoding step reads (and grows) all the copies.
Here a query attends to two parts in one softmax: the shared keys, which have no batch dimension, and its row's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from msgrpo_hub.errors import UserError

# Shapes: U rows, H query heads, J key heads, Q queries, P shared keys, L own keys, D head dimension.

NAME = "msgrpo_shared_prefix"


class RowLayer(DynamicLayer):
    """Keys and values of one layer, (U, J, L, D), in buffers with room to grow, so that a step copies nothing."""

    is_sliding = False

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if not start:
            self.lazy_initialization(key_states, value_states)
            self._room = [self._widened(states, 0, end) for states in (key_states, value_states)]
        elif end > self._room[0].shape[2]:
            self._room = [self._widened(room, start, end) for room in self._room]
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values

    @staticmethod
    def _widened(states: Tensor, filled: int, needed: int) -> Tensor:
        rows, heads, _, size = states.shape
        room = states.new_empty(rows, heads, needed + max(32, needed // 2), size)
        room[:, :, :filled] = states[:, :, :filled]
        return room

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may be taken several times."""
        end = self.get_seq_length()
        self._room = [room.index_select(0, rows) for room in self._room]
        self.keys, self.values = (room[:, :, :end] for room in self._room)


class RowCache(Cache):
    """A KV cache of rows that fork."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=RowLayer)

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            cast(RowLayer, layer).select(rows)

    def states(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer of a cache with one row, (J, L, D) each."""
        keys, values = cast(RowLayer, self.layers[layer]).keys, cast(RowLayer, self.layers[layer]).values
        assert keys is not None
        assert values is not None
        return keys[0], values[0]


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
    """Attention of `query` (U, H, Q, D) over the shared keys and the rows' own (U, J, L, D).

    Args:
        module: the attention layer; its `layer_idx` finds the shared keys.
        query: (U, H, Q, D).
        key: (U, J, L, D); each of the J key heads serves H / J query heads.
        value: (U, J, L, D).
        attention_mask: (U, 1, Q, L) additive, over the own keys; the shared keys are visible to every query.
        scaling: of the scores, by default 1/√D.
        softcap: where given, scores are softcap·tanh(score / softcap).
        shared_prefix: cache with one row, (1, J, P, D) a layer; None where nothing is shared.

    Returns:
        (U, Q, H, D), as transformers' attention interface asks, and no attention weights.
    """
    rows, heads, queries, size = query.shape
    grouped = query.reshape(rows, key.shape[1], -1, size) * (size**-0.5 if scaling is None else scaling)  # (U, J, H/J·Q, D)
    own = grouped @ key.transpose(2, 3)
    if softcap is not None:
        own = softcap * torch.tanh(own / softcap)
    if attention_mask is not None:
        own = own + attention_mask.repeat(1, 1, heads // key.shape[1], 1)
    if shared_prefix is None:
        mixed = torch.softmax(own, -1, dtype=torch.float32).to(value.dtype) @ value
        return mixed.reshape(rows, heads, queries, size).transpose(1, 2).contiguous(), None
    keys, values = shared_prefix.states(cast(int, module.layer_idx))
    flat = grouped.transpose(0, 1).reshape(key.shape[1], -1, size)  # (J, U·H/J·Q, D)
    shared = (flat @ keys.transpose(1, 2)).reshape(key.shape[1], rows, -1, keys.shape[1]).transpose(0, 1)
    if softcap is not None:
        shared = softcap * torch.tanh(shared / softcap)
    weights = torch.softmax(torch.cat([shared, own], -1), -1, dtype=torch.float32).to(value.dtype)
    to_shared, to_own = weights.split([shared.shape[-1], own.shape[-1]], -1)
    of_shared = to_shared.transpose(0, 1).reshape(key.shape[1], -1, shared.shape[-1]) @ values
    mixed = of_shared.reshape(key.shape[1], rows, -1, size).transpose(0, 1) + to_own @ value
    return mixed.reshape(rows, heads, queries, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, shared_prefix_attention)


@contextmanager
def acting(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Evaluation mode with attention over the shared prefix; afterwards the model is as it was."""
    base = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
    training, implementation = model.training, base.config._attn_implementation
    model.eval()
    base.set_attn_implementation(NAME)
    if base.config._attn_implementation != NAME:
        raise UserError(f"{type(base).__name__} does not use transformers' attention interface: expected a model that does")
    try:
        yield
    finally:
        base.set_attn_implementation(implementation)
        model.train(training)
