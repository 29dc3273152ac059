"""Decoding steps on a GPU, recorded once and replayed with one call: CUDA graphs.

A step of a language model is hundreds of small operations, and starting them takes longer than they do. A recording fixes
which memory is read and written. So the keys and values lie in buffers that stay where they are, and a recorded step has fixed
sizes: rows, tokens of a row and tokens of the shared prefix are rounded up, and masks hide what is too many.

Tests replay steps that were traced on a CPU, which fixes memory and control flow as a recording does. No GPU has run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from msgrpo_hub.models.attention import attend
from msgrpo_hub.models.direct_decoder import DirectDecoder, Layer
from msgrpo_hub.models.row_cache import RowCache

# Shapes: U rows, J key heads, L tokens of a row, P of the shared prefix, D head dimension; the recorded ones are at least these.

PATIENCE = 8
"""Steps of some sizes that are computed before one of them is recorded, which takes as long as several steps."""

BLOCK = 64
"""Tokens, and many rows, are rounded up to a multiple of it."""

Step = Callable[..., Tensor]
Record = Callable[[Step, tuple[Tensor, ...]], Step]
"""(step, its inputs) → a step that computes the same, with its inputs copied to where the recorded ones lie."""
Pair = tuple[Tensor, Tensor]
"""Keys and values."""
Size = tuple[int, int, int]
"""Rows, tokens of a row, tokens of the shared prefix."""


class RecordedSteps:
    """The rows of a batch in buffers, and recorded steps that read and extend them. It serves one batch after another.

    Args:
        decoder: whose weights stay where they are, and whose layers see all positions.
        patience: see `PATIENCE`.
    """

    def __init__(self, decoder: DirectDecoder, patience: int = PATIENCE) -> None:
        self._decoder, self._patience, self._record = decoder, patience, _as_graphs()
        self._rows: list[Pair] = []  # of each layer, (U, J, L, D)
        self._prefix: list[Pair] = []  # of each layer, (1, J, P, D)
        self._length, self._shared, self._shared_mask = 0, 0, torch.empty(0)
        self._steps: dict[Size, Step] = {}
        self._uses = Counter[Size]()

    def hold(self, rows: RowCache, prefix: RowCache | None) -> None:
        """Takes over the rows of a batch, and the prefix that they share."""
        layers = range(len(self._decoder.layers))
        states = [rows.states(layer) for layer in layers]
        self._length, self._shared = states[0][0].shape[2], 0 if prefix is None else prefix.get_seq_length()
        self._rows = self._kept(self._rows, states)
        if prefix is not None:
            self._prefix = self._kept(self._prefix, [prefix.states(layer) for layer in layers])
        self._shared_mask = states[0][0].new_zeros(1, 1, 1, _in_blocks(self._shared))
        self._shared_mask[..., self._shared :] = torch.finfo(self._shared_mask.dtype).min

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        self._rows = self._roomy(self._rows, len(rows), self._length)
        for pair in self._rows:
            for buffer in pair:
                buffer[: len(rows), :, : self._length] = buffer[rows, :, : self._length]

    def step(self, token_ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """The logits after one token more of each row, (U, 1, V).

        Args:
            token_ids: (U, 1).
            mask: (U, 1, 1, length) additive, over the tokens of each row, the new one included.
            positions: (U, 1) of the tokens, counted from the start of the shared prefix.
        """
        rows, self._length = len(token_ids), mask.shape[-1]
        size = (_rounded(rows), _in_blocks(self._length), _in_blocks(self._shared))
        self._rows = self._roomy(self._rows, size[0], size[1])
        more, least = size[0] - rows, torch.finfo(mask.dtype).min
        inputs = (
            functional.pad(token_ids, (0, 0, 0, more)),
            *(
                functional.pad(part, (0, 0, 0, 0, 0, 0, 0, more))
                for part in self._decoder.rotations(positions, self._shared + self._length)
            ),
            functional.pad(mask, (0, size[1] - self._length, 0, 0, 0, 0, 0, more), value=least),
            torch.full((1,), self._length - 1, device=token_ids.device),
            self._shared_mask,
        )
        self._uses[size] += 1
        if size not in self._steps and self._uses[size] > self._patience:
            self._steps[size] = self._record(self._step(size), tuple(part.clone() for part in inputs))
        step = self._steps.get(size) or self._step(size)
        return self._decoder.logits(step(*inputs)[:rows], 1)

    def _step(self, size: Size) -> Step:
        """The states after the last layer, (U, 1, hidden), as a function of tensors alone."""
        rows, length, shared = size
        own = [(keys[:rows, :, :length], values[:rows, :, :length]) for keys, values in self._rows]
        prefix = [(keys[0, :, :shared], values[0, :, :shared]) for keys, values in self._prefix] if shared else None

        def step(token_ids: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor, place: Tensor, shared_mask: Tensor) -> Tensor:
            def attention(layer: Layer, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
                index = layer.attention.layer_idx
                for buffer, states in zip(own[index], (keys, values), strict=True):
                    buffer.index_copy_(2, place, states)
                shared_states = None if prefix is None else prefix[index]
                keys, values = own[index]
                mixed = attend(queries, keys, values, mask, shared_states, None, None, shared_mask)
                return mixed.transpose(1, 2).contiguous()

            return self._decoder.states(token_ids, cosines, sines, attention)

        return step

    def _kept(self, buffers: list[Pair], states: list[Pair]) -> list[Pair]:
        """The buffers of each layer with these states at their beginning."""
        rows, _, length, _ = states[0][0].shape
        buffers = self._roomy(buffers or [(keys[:0, :, :0], values[:0, :, :0]) for keys, values in states], rows, length)
        for pair, new in zip(buffers, states, strict=True):
            for buffer, part in zip(pair, new, strict=True):
                buffer[:rows, :, :length] = part
        return buffers

    def _roomy(self, buffers: list[Pair], rows: int, length: int) -> list[Pair]:
        """The buffers, or larger ones if they are too small; what was recorded over those is dropped.

        Zeros fill them, since a masked number that is not finite would not stay without effect.
        """
        old = buffers[0][0]
        if rows <= old.shape[0] and length <= old.shape[2]:
            return buffers
        self._steps.clear()
        wider, longer = (
            old.shape[side] if needed <= old.shape[side] else max(rounded(needed), 2 * old.shape[side] if len(old) else 0)
            for side, needed, rounded in ((0, rows, _rounded), (2, length, _in_blocks))
        )

        def larger(buffer: Tensor) -> Tensor:
            return functional.pad(buffer, (0, 0, 0, longer - buffer.shape[2], 0, 0, 0, wider - buffer.shape[0]))

        return [(larger(keys), larger(values)) for keys, values in buffers]


def _rounded(rows: int) -> int:
    """Rows of a recorded step: a power of 2, from 64 on a multiple of 64.

    >>> [_rounded(rows) for rows in (1, 3, 64, 65, 300)]
    [1, 4, 64, 128, 320]
    """
    return 1 << (rows - 1).bit_length() if rows <= BLOCK else _in_blocks(rows)


def _in_blocks(tokens: int) -> int:
    """A multiple of 64.

    >>> [_in_blocks(tokens) for tokens in (0, 1, 64, 65)]
    [0, 64, 64, 128]
    """
    return -(-tokens // BLOCK) * BLOCK


def _as_graphs() -> Record:
    """Records CUDA graphs, which share the memory of what they compute in between."""
    pool = torch.cuda.graph_pool_handle()

    def record(step: Step, inputs: tuple[Tensor, ...]) -> Step:
        return cast(Step, torch.cuda.make_graphed_callables(step, inputs, pool=pool))

    return record
