"""Products of few rows with large weights, as decoding has them: oneDNN computes them faster than the default library (MKL).

In float32 oneDNN gets a copy of the weights in its own layout, made at the first such product of a context. Measured with
896 × 4864 weights on one thread and on two: 1.7 to 2 times as fast with 4 to 32 rows, 1.1 to 1.5 times with 96, no gain with
fewer than 4. The copy takes as long as five products of one row. In bfloat16 it reads the weights in place, 1.1 to 1.5 times as
fast with 4 to 16 rows.
The products differ in rounding alone. Small weights, gradients, other types and other devices stay with the default.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 2**19
"""Fewest weights of a layer."""
FEWEST, MOST = 4, 96
"""Rows of a product."""
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
        rows = input.numel() // self.in_features
        if FEWEST <= rows <= MOST and not torch.is_grad_enabled():
            weight = self._in_its_layout() if self.copies else self.weight
            product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, self.bias, "none", [], "")
            return product
        return super().forward(input)

    def _in_its_layout(self) -> Tensor:
        of = self.weight.data_ptr(), self.weight._version
        if self.copy is None or self.copy[0] != of:
            self.copy = of, torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), FEWEST)
        return self.copy[1]


@contextmanager
def few_rows_by_one_dnn(model: nn.Module) -> Iterator[None]:
    """Inside the context the large linear layers of a model compute few rows by oneDNN, where this build of torch has it."""
    layers: list[Any] = [layer for layer in model.modules() if _gains(layer)] if HAS_ONE_DNN else []
    room = ROOM
    for layer in layers:
        layer.__class__ = FewRowsLinear
        size = layer.weight.nbytes
        layer.copies, layer.copy = layer.weight.dtype == torch.float32 and size <= room, None
        room -= size * layer.copies
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.Linear
            del layer.copies, layer.copy


def _gains(layer: nn.Module) -> bool:
    if type(layer) is not nn.Linear:
        return False
    weight = layer.weight
    known = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and _has_bfloat16())
    return known and weight.numel() >= LARGE and weight.device.type == "cpu"


def _has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
