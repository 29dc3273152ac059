"""Products of few rows with large weights, as decoding has them: oneDNN computes them faster than the default library (MKL).

oneDNN gets a copy of the weights in its own layout, made at the first such product of a context, which takes as long as five
products of one row. On one thread of an Intel Xeon, with 896 × 9728 weights (`benchmark/throughput/results/few_rows.json`): in
float32 1.8 and 2.1 times as fast with 4 and 8 rows, 1.1 to 1.6 times with 16 to 96, and no gain with fewer, which an AMD EPYC has
(2.5 and 4.4 times with 2 and 3, in this file before); in bfloat16, where the processor has it, 1.4 to 1.7 times with 1 to 96. The
products differ in rounding alone. Small weights, gradients, other types and other devices stay with the default.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 2**19
"""Fewest weights of a layer."""
FEWEST = {torch.float32: 2, torch.bfloat16: 1}
"""Fewest rows of a product, by the type of its states."""
MOST = 96
"""Most rows of a product."""
ROOM = 2**31
"""Bytes of a model's copied weights. Layers beyond it are read in place."""

HAS_ONE_DNN = platform.machine() in ("x86_64", "AMD64") and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class FewRowsLinear(nn.Linear):
    """A linear layer whose products of few rows are computed by oneDNN."""

    copies: bool
    """Whether oneDNN gets a copy of the weights in its own layout."""
    copy: tuple[tuple[int, int], Tensor] | None
    """Which weights it is of, and the copy."""

    def forward(self, input: Tensor) -> Tensor:
        if _is_few(input) and not torch.is_grad_enabled():
            return _by_one_dnn(input, self._in_its_layout() if self.copies else self.weight, self.bias)
        return super().forward(input)

    def _in_its_layout(self) -> Tensor:
        of = self.weight.data_ptr(), self.weight._version
        if self.copy is None or self.copy[0] != of:
            self.copy = of, _reordered(self.weight.detach())
        return self.copy[1]


class JoinedLinear:
    """Linear layers with one input as one product, without gradients; the weights stay as they are while it is used.

    Together they are one layer if they are small, and for few rows one copy in oneDNN's layout if all large ones may be copied.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self._layers = layers
        self._bias = None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])
        self._small = self._weights() if sum(layer.weight.numel() for layer in layers) < LARGE else None
        large = [layer.copies for layer in layers if isinstance(layer, FewRowsLinear)]
        self._copies = bool(large) and all(large)
        self._copy: Tensor | None = None

    def __call__(self, states: Tensor) -> Tensor:
        """The outputs of all layers side by side, (..., sum of their outputs), of states (..., inputs)."""
        if self._small is not None:
            return functional.linear(states, self._small, self._bias)
        if self._copies and _is_few(states):
            if self._copy is None:
                self._copy = _reordered(self._weights())
            return _by_one_dnn(states, self._copy, self._bias)
        return torch.cat([layer(states) for layer in self._layers], -1)

    def _weights(self) -> Tensor:
        return torch.cat([layer.weight.detach() for layer in self._layers])


@contextmanager
def few_rows_by_one_dnn(model: nn.Module) -> Iterator[None]:
    """Inside the context the large linear layers of a model compute few rows by oneDNN, where this build of torch has it."""
    layers: list[Any] = [layer for layer in model.modules() if _gains(layer)] if HAS_ONE_DNN else []
    room = ROOM
    for layer in layers:
        layer.__class__ = FewRowsLinear
        size = layer.weight.nbytes
        layer.copies, layer.copy = size <= room, None
        room -= size * layer.copies
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.Linear
            del layer.copies, layer.copy


def copied_bytes(model: nn.Module) -> int:
    """The most bytes that the copies of a model's weights take."""
    return min(ROOM, sum(layer.weight.nbytes for layer in model.modules() if HAS_ONE_DNN and _gains(layer)))  # type: ignore[misc]


def _is_few(states: Tensor) -> bool:
    return FEWEST.get(states.dtype, MOST + 1) <= states.numel() // states.shape[-1] <= MOST


def _by_one_dnn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return product


def _reordered(weight: Tensor) -> Tensor:
    copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 4)  # the layout serves other numbers of rows
    return copy


def _gains(layer: nn.Module) -> bool:
    if type(layer) is not nn.Linear:
        return False
    weight = layer.weight
    known = weight.dtype in FEWEST and (weight.dtype != torch.bfloat16 or _has_bfloat16())
    return known and weight.numel() >= LARGE and weight.device.type == "cpu"


def _has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
