"""The weights in use: a version that identifies them, and LoRA merged into its base while the model acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear, LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper

from msgrpo_hub.models.lora import active_adapters


def weights_version(model: torch.nn.Module) -> tuple[object, ...]:
    """A value that changes with the weights: in-place updates, replaced tensors, adapters switched on or off."""
    modules = list(model.modules())
    parameters = held(modules)
    tensors = [(tensor.data_ptr(), tensor._version) for tensor in parameters]
    trained = [tensor.detach() for tensor in parameters if tensor.requires_grad]
    # Fused optimisers do not increase the version.
    norms = torch.stack(torch._foreach_norm(trained, 2, torch.float32)).tolist() if trained else []
    return tuple(tensors), tuple(norms), adapters_in_use(modules)


def adapters_in_use(modules: Iterable[torch.nn.Module]) -> tuple[object, ...]:
    """Of each layer with adapters, whether they are off or merged, which are active, and how they are scaled."""
    layers = [module for module in modules if isinstance(module, BaseTunerLayer)]
    return tuple((layer.disable_adapters, layer.merged, tuple(layer.active_adapters), _scaling(layer)) for layer in layers)


def _scaling(layer: BaseTunerLayer) -> tuple[float, ...]:
    """The factor of each adapter of a LoRA layer."""
    return tuple(layer.scaling.values()) if isinstance(layer, LoraLayer) else ()


def held(modules: Iterable[torch.nn.Module]) -> list[torch.nn.Parameter]:
    """The parameters of every module; one that two modules share comes twice."""
    return [tensor for module in modules for tensor in module._parameters.values() if tensor is not None]


@contextmanager
def without_adapter(model: torch.nn.Module) -> Iterator[None]:
    """Inside the context, which is without gradients, the model is its base.

    PEFT's own context also describes every layer and freezes its matrices: with 250 layers that takes as long as a forward pass.
    """
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper)]
    with torch.no_grad(), _off(layers):
        yield


@contextmanager
def _off(layers: Sequence[Any]) -> Iterator[None]:
    """Switches off those of PEFT's layers that are on."""
    on = [layer for layer in layers if not layer._disable_adapters]
    for layer in on:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in on:
            layer._disable_adapters = False


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """Inside the context, y = (W + s·BA) x is one matrix product instead of the three of W x + s·B (A x).

    For a small model LoRA's products cost more than those of the base. On exit the base gets its original tensors back,
    because adding and then subtracting would not restore the same bits. Merging applies in float32 and for plain LoRA on
    linear layers; otherwise the context does nothing. In bfloat16 the sum would be rounded to 8 bits, an error larger than
    the change an adapter makes early in training. Nor does it apply to a weight that another module has too, such as an output
    head tied to the embedding: the sum would be added there as well.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    if not (isinstance(model, PeftModel) and layers and all(map(_mergeable, layers))) or _shares_weights(model, layers):
        yield
        return
    originals = [layer.weight.data for layer in layers]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, originals, strict=True):
                layer.weight.data = weight.clone()
                for name in active_adapters(layer):
                    layer.weight.add_(layer.get_delta_weight(name))  # in place, so that `weights_version` changes
        with _off(layers):
            yield
    finally:
        for layer, weight in zip(layers, originals, strict=True):
            layer.weight.data = weight


def _shares_weights(model: torch.nn.Module, layers: Sequence[Any]) -> bool:
    """Whether a module beside these layers has the weight of one of them."""
    uses = Counter(tensor.data_ptr() for tensor in held(model.modules()))
    return any(uses[layer.weight.data_ptr()] > 1 for layer in layers)


def _mergeable(layer: Any) -> bool:
    plain: bool = type(layer) is Linear and not layer.disable_adapters and not layer.merged
    known: bool = plain and not layer.lora_variant and not any(layer.lora_bias.values())
    return known and bool(layer.weight.dtype == torch.float32)
