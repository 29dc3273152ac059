"""Acting with merged weights: y = (W + s·BA) x is one product, y = W x + s·B (A x) is three.

For a small model LoRA's own products cost more than the base's. The base weights are put back as they were, bit for bit:
adding and subtracting again would not do that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from peft import PeftModel
from peft.tuners.lora import Linear


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """While it lasts, a LoRA adapter is part of the base's weights; afterwards both are as before.

    Only in float32: in bfloat16 the sum would be rounded to 8 bits, which is more than a small adapter changes. There,
    and for a model without LoRA, nothing is done.
    """
    layers = [module for module in model.modules() if isinstance(module, Linear) and not module.disable_adapters]
    if not (isinstance(model, PeftModel) and layers and all(layer.weight.dtype == torch.float32 for layer in layers)):
        yield
        return
    kept = [layer.weight.data for layer in layers]
    with ExitStack() as stack, torch.no_grad():
        for layer, weight in zip(layers, kept, strict=True):
            layer.weight.data = weight + sum(layer.get_delta_weight(name) for name in layer.active_adapters)
        stack.enter_context(model.disable_adapter())
        try:
            yield
        finally:
            for layer, weight in zip(layers, kept, strict=True):
                layer.weight.data = weight
