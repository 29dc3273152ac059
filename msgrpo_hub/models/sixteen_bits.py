"""What learning computes otherwise on a GPU, with a base of 16 bits: fewer operations, in the types that it is fast in.

PEFT computes an adapter in float32, as which its matrices are trained, and a GPU's matrix units want 16 bits: with a base in
bfloat16 the products of the adapter took longer than those of the base (benchmark/throughput/results/README.md). So they are
computed in the base's type, as under autocast; the matrices, their gradients and the optimiser stay in float32. And a norm is
one operation, which rounds once, where the module's eight round twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakSet

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional

from msgrpo_hub.models.direct_decoder import FAMILIES
from msgrpo_hub.models.lora import active_adapters, factors, has_plain_adapter

_INSIDE: WeakSet[nn.Module] = WeakSet()
"""Models that are computed so now."""

NORMS = tuple(f"{family}RMSNorm" for family in FAMILIES)


class LowLora(LoraLinear):
    """A linear layer with LoRA whose products are computed in the type of its base, with gradients."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs.get("adapter_names") or not has_plain_adapter(self):
            return super().forward(x, *args, **kwargs)
        [name] = active_adapters(self)
        first, second = factors(self)
        flat = x.flatten(0, -2)
        inner = functional.linear(self.lora_dropout[name](flat), first.to(x.dtype))
        outputs = cast(Tensor, self.base_layer(flat)).addmm_(inner, second.to(x.dtype).T)
        return cast(Tensor, outputs.unflatten(0, x.shape[:-1]))


class OneNorm(nn.Module):
    """Root mean square layer normalisation as one operation."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        return functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


@contextmanager
def in_sixteen_bits(model: nn.Module) -> Iterator[None]:
    """Inside the context, LoRA on 16-bit layers on a GPU is computed in their type, and a norm there is one operation.

    A nested context does nothing.
    """
    if model in _INSIDE or not _is_low(next(model.parameters())):  # the embedding has the type of the base
        yield
        return
    changed: list[tuple[Any, type]] = []
    for module in model.modules():
        if type(module) is LoraLinear and type(module.base_layer) is nn.Linear and _is_low(module.base_layer.weight):
            changed.append((module, LowLora))
        elif type(module).__name__ in NORMS and _is_low(cast(Tensor, module.weight)):
            changed.append((module, OneNorm))
    before = [type(module) for module, _ in changed]
    _INSIDE.add(model)
    for module, kind in changed:
        module.__class__ = kind
    try:
        yield
    finally:
        _INSIDE.discard(model)
        for (module, _), kind in zip(changed, before, strict=True):
            module.__class__ = kind


def _is_low(weight: Tensor) -> bool:
    return weight.dtype in (torch.bfloat16, torch.float16) and weight.device.type == "cuda"
