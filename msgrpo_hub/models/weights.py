"""The weights that act: which version they are, and a LoRA adapter merged into its base for as long as it acts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer


def weights_version(model: torch.nn.Module) -> tuple[object, ...]:
    """Changes with every change of the weights: in-place updates, replaced tensors, adapters switched on or off."""
    parameters = list(model.parameters())
    tensors = [(tensor.data_ptr(), tensor._version) for tensor in parameters]
    trained = [tensor.detach().float().norm() for tensor in parameters if tensor.requires_grad]
    norms = torch.stack(trained).tolist() if trained else []  # fused optimisers do not raise the version
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    return tuple(tensors), tuple(norms), tuple((layer.disable_adapters, tuple(layer.active_adapters)) for layer in layers)


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """While it lasts, y = (W + s·BA) x is one product instead of the three of W x + s·B (A x).

    For a small model LoRA's own products cost more than the base's. Afterwards the base has its very tensors again:
    adding and then subtracting would not give the same bits. Only in float32 and for plain LoRA on linear layers; else
    nothing is done. In bfloat16 the sum would be rounded to 8 bits, which is more than a young adapter changes.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    if not (isinstance(model, PeftModel) and layers and all(map(_mergeable, layers))):
        yield
        return
    kept = [layer.weight.data for layer in layers]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, kept, strict=True):
                layer.weight.data = weight.clone()
                for name in layer.active_adapters:
                    layer.weight.add_(layer.get_delta_weight(name))  # in place, so that `weights_version` sees it
        with model.disable_adapter():
            yield
    finally:
        for layer, weight in zip(layers, kept, strict=True):
            layer.weight.data = weight


def _mergeable(layer: Any) -> bool:
    plain: bool = type(layer) is Linear and not layer.disable_adapters and not layer.merged
    known: bool = plain and not layer.lora_variant and not any(layer.lora_bias.values())
    return known and bool(layer.weight.dtype == torch.float32)
