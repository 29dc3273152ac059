"""The cache of keys and values that acting uses: a row per distinct partial reply, which forks where replies part."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

# Shapes: U rows, J key heads, L tokens of a row, D head dimension.


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
        return self._show(end)

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
        self._show(end)

    def hold(self, prefix: RowLayer) -> None:
        """Puts a prefix, which has one row, before the tokens of every row."""
        shared, end = prefix.get_seq_length(), prefix.get_seq_length() + self.get_seq_length()
        rows, own = len(self._buffers[0]), cast("tuple[Tensor, Tensor]", (self.keys, self.values))
        of_all = [cast(Tensor, states).expand(rows, -1, -1, -1) for states in (prefix.keys, prefix.values)]
        self._buffers = [self._widened(states, shared, end) for states in of_all]
        for buffer, states in zip(self._buffers, own, strict=True):
            buffer[:, :, shared:end] = states
        self._show(end)

    def drop(self, tokens: int) -> None:
        """Leaves out the first tokens of every row."""
        end = self.get_seq_length() - tokens
        self._buffers = [buffer[:, :, tokens:] for buffer in self._buffers]
        self._show(end)

    def _show(self, end: int) -> tuple[Tensor, Tensor]:
        """Makes the first tokens of the buffers the keys and values."""
        keys, values = (buffer[:, :, :end] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


class RowCache(Cache):
    """A KV cache whose rows can fork."""

    held = 0
    """Tokens of the shared prefix that every row holds itself."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=RowLayer)

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            cast(RowLayer, layer).select(rows)

    def hold(self, prefix: RowCache) -> None:
        """Puts a shared prefix before the tokens of every row."""
        for layer, of_all in zip(self.layers, prefix.layers, strict=True):
            cast(RowLayer, layer).hold(cast(RowLayer, of_all))
        self.held = prefix.get_seq_length()

    def drop(self) -> None:
        """Leaves the shared prefix out again."""
        for layer in self.layers:
            cast(RowLayer, layer).drop(self.held)
        self.held = 0

    def states(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values of one layer, (U, J, L, D) each."""
        keys, values = cast(RowLayer, self.layers[layer]).keys, cast(RowLayer, self.layers[layer]).values
        assert keys is not None
        assert values is not None
        return keys, values
