"""Decoding steps on a GPU, recorded once and replayed with one call: CUDA graphs.

A step of a language model is hundreds of small operations, and starting them takes longer than they do. A recording fixes
which memory is read and written. So keys, values and masks lie in buffers that stay where they are, and a recorded step has fixed
sizes: rows, tokens of a row and tokens of the shared prefix are rounded up, and masks hide what is too many.

A row keeps its slot in the buffers while others end. Rows are copied where they fork, and where so many have ended that the
others fit into a smaller recorded step:

    rows      a  b  c  d        b ends, and d forks         a  c  d  d'
    slots     0  1  2  3   ──────────────────────────→      0  2  3  1

Tests replay steps that were traced on a CPU, which fixes memory and control flow as a recording does, and on a GPU the graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from msgrpo_hub.models.attention import attend
from msgrpo_hub.models.devices import there
from msgrpo_hub.models.direct_decoder import DirectDecoder, Layer
from msgrpo_hub.models.fused_step import fused_step, has_kernels
from msgrpo_hub.models.row_cache import RowCache
from msgrpo_hub.models.sampling import IntArray

# Shapes: U rows, J key heads, L tokens of a row, P of the shared prefix, D head dimension; the recorded ones are at least these.

PATIENCE = 2
"""Steps of some sizes that are computed before one of them is recorded, which takes as long as three steps."""

MOST = 128
"""Recorded steps that are kept, the most used ones."""

BLOCK = 64
"""Tokens, and many rows, are rounded up to a multiple of it."""

Step = Callable[..., Tensor]
Record = Callable[[Step, tuple[Tensor, ...]], Step]
"""(step, its inputs) → a step that computes the same, with its inputs copied to where the recorded ones lie."""
Size = tuple[int, int, int]
"""Rows, tokens of a row, tokens of the shared prefix."""


class RecordedSteps:
    """The rows of a batch in buffers, and recorded steps that read and extend them. It serves one batch after another.

    Args:
        decoder: one for recordings, whose layers see all positions.
        patience: see `PATIENCE`.
    """

    def __init__(self, decoder: DirectDecoder, patience: int = PATIENCE) -> None:
        self._decoder, self._patience, self._record = decoder, patience, _as_graphs()
        self._by_kernels = has_kernels(decoder)
        self._rows: list[Tensor] = []  # of each layer, (2, U, J, L, D), its keys and its values
        self._mask = torch.empty(0, 1, 1, 0)  # (U, 1, 1, L) additive, over the tokens of each row
        self._prefix: list[Tensor] = []  # of each layer, (2, J, P, D)
        self._prefix_mask = torch.empty(0)  # (1, 1, 1, P)
        self._slots = np.empty(0, np.int64)  # of each row, its place in the buffers
        self._slots_there = torch.empty(0)
        self._positions = np.empty(0, np.int64)  # of each row, that of its next token
        self._length, self._shared, self._used = 0, 0, 0
        self._steps: dict[Size, Step] = {}
        self._uses = Counter[Size]()

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and masks, without what the recordings compute in between."""
        return sum(buffer.nbytes for buffer in (*self._rows, self._mask, *self._prefix))

    def hold(self, rows: RowCache, prefix: RowCache | None, visible: Tensor) -> None:
        """Takes over the rows of a batch, and the prefix that they share.

        Args:
            rows: their keys and values.
            prefix: those of the prefix, in one row.
            visible: (U, length) false at padding.
        """
        layers = range(len(self._decoder.layers))
        states = [rows.states(layer) for layer in layers]
        count, self._length = visible.shape
        self._shared = 0 if prefix is None else prefix.get_seq_length()
        self._used = _rounded(count)
        self._make_room(states[0][0], self._used, self._length)
        for buffer, of_layer in zip(self._rows, states, strict=True):
            buffer.zero_()  # an unused slot may hold what is not finite, which would not stay without effect behind a mask
            for part, new in zip(buffer, of_layer, strict=True):
                part[:count, :, : self._length] = new
        self._mask.fill_(torch.finfo(self._mask.dtype).min)
        self._mask[:count, 0, 0, : self._length].masked_fill_(visible, 0.0)
        if prefix is not None:
            self._hold_prefix([prefix.states(layer) for layer in layers])
        self._put(np.arange(count))
        self._positions = visible.sum(1).cpu().numpy() + self._shared

    def select(self, rows: IntArray) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        self._used = _rounded(len(rows))
        self._make_room(self._rows[0][0], self._used, self._length)
        before = self._slots[rows]
        stay = np.zeros(len(rows), bool)
        stay[np.unique(before, return_index=True)[1]] = True
        stay &= before < self._used
        free = np.setdiff1d(np.arange(self._used), before[stay])
        after = before.copy()
        after[~stay] = free[: (~stay).sum()]  # none of them is read: what stays below `used` is not free
        if not stay.all():
            device = self._mask.device
            old, new = (there(slots[~stay], device) for slots in (before, after))
            for buffer in self._rows:
                buffer[:, new, :, : self._length] = buffer[:, old, :, : self._length]
            self._mask[new] = self._mask[old]
        self._put(after)
        self._positions = self._positions[rows]

    def step(self, tokens: IntArray) -> Tensor:
        """Appends one token to each row, (U,). Returns the next-token logits, (U, V) in the model's type."""
        self._make_room(self._rows[0][0], self._used, self._length + 1)
        size = (self._used, _in_blocks(self._length + 1), _in_blocks(self._shared))
        given = np.zeros(2 * self._used + 1, np.int64)  # unused slots have token 0 at position 0
        given[self._slots], given[self._used + self._slots], given[-1] = tokens, self._positions, self._length
        ids, positions, place = there(given, self._mask.device).split([self._used, self._used, 1])
        self._length += 1
        self._positions = self._positions + 1
        inputs = (ids[:, None], *self._decoder.rotations(positions[:, None], self._shared + self._length), place)
        self._uses[size] += 1
        if size not in self._steps and self._uses[size] > self._patience:
            if len(self._steps) == MOST:
                del self._steps[min(self._steps, key=self._uses.__getitem__)]
            self._steps[size] = self._record(self._step(size), tuple(part.clone() for part in inputs))
        step = self._steps.get(size) or self._step(size)
        return cast(Tensor, self._decoder.head(step(*inputs)[self._slots_there]))[:, -1]

    def _step(self, size: Size) -> Step:
        """The normed states after the last layer, (U, 1, hidden), as a function of tensors alone."""
        rows, length, shared = size
        own = [(buffer[0, :rows, :, :length], buffer[1, :rows, :, :length]) for buffer in self._rows]
        mask = self._mask[:rows, :, :, :length]
        prefix = [(buffer[0, :, :shared], buffer[1, :, :shared]) for buffer in self._prefix] if shared else None
        prefix_mask = self._prefix_mask[..., :shared] if shared else None
        if self._by_kernels:
            return fused_step(self._decoder, own, mask, prefix, prefix_mask)

        def step(token_ids: Tensor, cosines: Tensor, sines: Tensor, place: Tensor) -> Tensor:
            mask.index_fill_(3, place, 0.0)

            def attention(layer: Layer, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
                index = layer.attention.layer_idx
                for part, states in zip(own[index], (keys, values), strict=True):
                    part.index_copy_(2, place, states)
                shared_states = None if prefix is None else prefix[index]
                keys, values = own[index]
                mixed = attend(queries, keys, values, mask, shared_states, None, None, prefix_mask)
                return mixed.transpose(1, 2).contiguous()

            return self._decoder.norm(self._decoder.states(token_ids, cosines, sines, attention))

        return step

    def _put(self, slots: IntArray) -> None:
        """Says where the rows are."""
        self._slots = slots
        self._slots_there = there(slots, self._mask.device)

    def _hold_prefix(self, states: list[tuple[Tensor, Tensor]]) -> None:
        """Copies the prefix to its buffers, which are made anew where they are too short."""
        shared = self._shared
        if not self._prefix or shared > self._prefix[0].shape[2]:
            self._steps.clear()
            heads, _, size = states[0][0][0].shape
            self._prefix = [keys.new_zeros(2, heads, _in_blocks(shared), size) for keys, _ in states]
            self._prefix_mask = self._mask.new_empty(1, 1, 1, _in_blocks(shared))
        for buffer, of_layer in zip(self._prefix, states, strict=True):
            for part, new in zip(buffer, of_layer, strict=True):
                part[:, :shared] = new[0]
        self._prefix_mask.fill_(0.0)
        self._prefix_mask[..., shared:] = torch.finfo(self._prefix_mask.dtype).min

    def _make_room(self, like: Tensor, rows: int, length: int) -> None:
        """Larger buffers if they are too small, filled with zeros; what was recorded over the old ones is dropped."""
        old = (self._mask.shape[0], self._mask.shape[3])
        if rows <= old[0] and length <= old[1]:
            return
        self._steps.clear()
        wider, longer = (
            had if needed <= had else rounded(max(needed, had + had // 2))
            for had, needed, rounded in zip(old, (rows, length), (_rounded, _in_blocks), strict=True)
        )
        _, heads, _, size = like.shape
        layers = len(self._decoder.layers)
        more = (0, longer - old[1], 0, 0, 0, wider - old[0])
        mask = functional.pad(self._mask.to(like), (more[0], more[1], 0, 0, *more[2:]), value=torch.finfo(like.dtype).min)
        before, room = self._rows or [like.new_empty(2, 0, heads, 0, size)] * layers, []
        self._rows, self._mask = [], mask[:0, ..., :0]  # nothing is half as large if memory ends here
        for layer in range(layers):  # one after the other: all old and new buffers together may not fit
            room.append(functional.pad(before[layer], (0, 0, *more)))
            before[layer] = like.new_empty(0)
        self._rows, self._mask = room, mask


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
        return cast(Step, torch.cuda.make_graphed_callables(step, inputs, num_warmup_iters=1, pool=pool))

    return record
