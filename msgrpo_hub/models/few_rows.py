"""Products of few rows with large weights, as decoding has them: oneDNN computes them faster than the default library (MKL).

Measured on one thread, 896 × 4864 weights in float32: 1.2 to 1.6 times from 4 to 32 rows, and no gain beyond 96 or below 4.
The products differ in rounding alone. Small weights, gradients, other types and other devices stay with the default.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LARGE = 2**20
"""Fewest weights of a layer."""
FEWEST, MOST = 4, 96
"""Rows of a product."""

HAS_ONE_DNN = platform.machine() in ("x86_64", "AMD64") and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class FewRowsLinear(nn.Linear):
    """A linear layer whose products of few rows are computed by oneDNN; it has no further state."""

    def forward(self, input: Tensor) -> Tensor:
        rows = input.numel() // self.in_features
        if FEWEST <= rows <= MOST and not torch.is_grad_enabled():
            product: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")
            return product
        return super().forward(input)


@contextmanager
def few_rows_by_one_dnn(model: nn.Module) -> Iterator[None]:
    """Inside the context the large linear layers of a model compute few rows by oneDNN, where this build of torch has it."""
    layers = [layer for layer in model.modules() if _gains(layer)] if HAS_ONE_DNN else []
    for layer in layers:
        layer.__class__ = FewRowsLinear
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.Linear


def _gains(layer: nn.Module) -> bool:
    if type(layer) is not nn.Linear:
        return False
    weight = layer.weight
    return weight.numel() >= LARGE and weight.device.type == "cpu" and weight.dtype == torch.float32
