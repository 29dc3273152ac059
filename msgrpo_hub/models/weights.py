"""The weights in use: their version, the base without its adapter, LoRA merged into its base, and copies for few rows."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

LARGE = 2**19
"""Smallest number of weights of a layer that gets a copy."""
FEWEST = {torch.float32: 2, torch.bfloat16: 1}
"""Smallest number of rows for which a copy is used, by type."""
MOST = 96
"""Largest number of rows for which a copy is used."""
COPIED = 2**31
"""Size limit of a model's copies, in bytes. oneDNN reads the weights of further layers in place."""

HAS_ONE_DNN = platform.machine() in ("x86_64", "AMD64") and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def weights_version(model: nn.Module) -> tuple[object, ...]:
    """A value that changes with the weights: in-place updates, replaced tensors, adapters switched on or off."""
    modules = list(model.modules())
    parameters = [tensor for module in modules for tensor in module._parameters.values() if tensor is not None]
    tensors = [(tensor.data_ptr(), tensor._version) for tensor in parameters]
    trained = [tensor.detach() for tensor in parameters if tensor.requires_grad]
    # Fused optimisers do not increase the version.
    norms = torch.stack(torch._foreach_norm(trained, 2, torch.float32)).tolist() if trained else []
    adapters = tuple(
        (layer.disable_adapters, layer.merged, tuple(layer.active_adapters), tuple(getattr(layer, "scaling", {}).values()))
        for layer in modules
        if isinstance(layer, BaseTunerLayer)
    )
    return tuple(tensors), tuple(norms), adapters


@contextmanager
def without_adapter(model: nn.Module, kinds: tuple[type, ...] = (BaseTunerLayer, AuxiliaryTrainingWrapper)) -> Iterator[None]:
    """Turns the model into its base, without gradients; `kinds` are the PEFT layers that are switched off.

    PEFT's own context also visits and freezes every matrix, which takes as long as a forward pass.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, kinds)]
    on = [layer for layer in layers if not layer._disable_adapters]
    for layer in on:
        layer._disable_adapters = True
    try:
        with torch.no_grad():
            yield
    finally:
        for layer in on:
            layer._disable_adapters = False


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """Inside the context, y = (W + s·BA) x is one matrix product instead of the three of W x + s·B (A x).

    The base gets its original tensors back on exit, because adding and then subtracting would not restore the same bits. The
    context does nothing unless LoRA is plain, on linear layers in float32 (bfloat16 would round away small changes) whose weights
    no other module shares, as an output head tied to the embedding does.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    uses = Counter(t.data_ptr() for module in model.modules() for t in module._parameters.values() if t is not None)
    mergeable = isinstance(model, PeftModel) and all(
        type(layer) is Linear
        and not (layer.disable_adapters or layer.merged or layer.lora_variant or any(layer.lora_bias.values()))
        and layer.weight.dtype == torch.float32
        and uses[layer.weight.data_ptr()] == 1
        for layer in layers
    )
    if not (layers and mergeable):
        yield
        return
    originals = [layer.weight.data for layer in layers]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, originals, strict=True):
                layer.weight.data = weight.clone()
                for name in (name for name in layer.active_adapters if name in layer.lora_A):
                    layer.weight.add_(layer.get_delta_weight(name))  # in place, so that `weights_version` changes
        with without_adapter(model, (BaseTunerLayer,)):
            yield
    finally:
        for layer, weight in zip(layers, originals, strict=True):
            layer.weight.data = weight


class FewRowsLinear(nn.Linear):
    """A linear layer that computes few rows by oneDNN, as in decoding steps, without gradients."""

    copies: bool
    """Whether oneDNN gets a copy of the weights in its own layout."""
    copy: tuple[tuple[int, int], Tensor] | None
    """The version of the weights, and their copy."""

    def forward(self, input: Tensor) -> Tensor:
        rows = input.numel() // input.shape[-1]
        if torch.is_grad_enabled() or not FEWEST.get(input.dtype, MOST + 1) <= rows <= MOST:
            return super().forward(input)
        weight: Tensor = self.weight
        if self.copies:
            version = self.weight.data_ptr(), self.weight._version
            if self.copy is None or self.copy[0] != version:
                self.copy = version, torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), 4)  # for any number of rows
            weight = self.copy[1]
        product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, self.bias, "none", [], "")
        return product


@contextmanager
def few_rows_by_one_dnn(model: nn.Module) -> Iterator[None]:
    """Inside the context the large linear layers of a model on the CPU compute few rows by oneDNN.

    The default library (MKL) multiplies few rows with large weights more slowly, most of all in bfloat16. The results differ only
    by rounding. A copy of the weights is made at the first such product.
    """
    layers, room = cast(list[Any], large_layers(model)), COPIED
    for layer in layers:
        layer.__class__ = FewRowsLinear
        layer.copies, layer.copy = layer.weight.nbytes <= room, None
        room -= layer.weight.nbytes * layer.copies
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.Linear
            del layer.copies, layer.copy


def large_layers(model: nn.Module) -> list[nn.Linear]:
    """The layers that compute few rows by oneDNN."""
    types = [t for t in FEWEST if HAS_ONE_DNN and (t != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())]
    return [
        layer
        for layer in model.modules()
        if type(layer) is nn.Linear
        and layer.weight.dtype in types
        and layer.weight.numel() >= LARGE
        and layer.weight.device.type == "cpu"
    ]
