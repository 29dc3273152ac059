"""LoRA beside its bases while a model acts: by fewer products than PEFT's, which makes seven calls of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional

from msgrpo_hub.models.few_rows import FewRowsLinear, JoinedLinear

_JOINED = "_msgrpo_joined"
"""Attribute of the first of the layers that lie side by side: the tensor that they are parts of.

It lives as long as the model; who moves the weights elsewhere after acting on a GPU deletes it."""


def is_plain_lora(layer: nn.Module) -> bool:
    """Whether one adapter is added to a linear layer as in the LoRA paper, by PEFT's usual class."""
    return type(layer) is LoraLinear and has_plain_adapter(layer)


def has_plain_adapter(layer: LoraLinear) -> bool:
    """Whether one adapter is added to the linear layer as in the LoRA paper."""
    if layer.disable_adapters or layer.merged:
        return False
    active = active_adapters(layer)
    plain = len(active) == 1 and active[0] not in layer.lora_variant and layer.lora_B[active[0]].bias is None
    return plain and type(layer.base_layer) in (nn.Linear, FewRowsLinear)


def active_adapters(layer: LoraLinear) -> list[str]:
    """The active adapters that the layer has."""
    return [name for name in layer.active_adapters if name in layer.lora_A]


def factors(layer: LoraLinear) -> tuple[Tensor, Tensor]:
    """A (r, inputs) and s·B (outputs, r) of the active adapter of a layer that `has_plain_adapter`."""
    [name] = active_adapters(layer)
    first, second = (cast(Tensor, part[name].weight) for part in (layer.lora_A, layer.lora_B))
    return first, layer.scaling[name] * second


class JoinedLora:
    """Linear layers with one input and an adapter of each, as they act while it is not merged.

    The bases are joined, and so are the adapters' first factors.
    """

    def __init__(self, layers: Sequence[LoraLinear]) -> None:
        self._bases = JoinedLinear([cast(nn.Linear, layer.base_layer) for layer in layers])
        pairs = [factors(layer) for layer in layers]
        self._first = torch.cat([first.detach() for first, _ in pairs])
        self._second = [second.detach() for _, second in pairs]
        self._ranks = [len(first) for first, _ in pairs]

    def __call__(self, states: Tensor) -> Tensor:
        """The outputs of all layers side by side, (..., sum of their outputs), of states (..., inputs)."""
        outputs = self._bases(states)
        inner = functional.linear(states.to(self._first.dtype), self._first).split(self._ranks, -1)
        added = [functional.linear(part, second) for part, second in zip(inner, self._second, strict=True)]
        return (outputs + torch.cat(added, -1)).to(outputs.dtype)


class FixedProduct:
    """Linear layers with one input, and the adapters of some, as two products that read the same memory whenever they run.

    The weights of the layers are moved side by side into one tensor, and stay in use as parts of it; A of all adapters follows:

        x · [W1; W2; A1; A2]ᵀ = [y1, y2, z1, z2]          [y1, y2] += [z1, z2] · diag(s·B1, s·B2)ᵀ

    Args:
        layers: plain linear layers, or such that `is_plain_lora` accepts.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        bases: list[nn.Linear] = [cast(nn.Linear, getattr(layer, "base_layer", layer)) for layer in layers]
        self._outputs = sum(base.out_features for base in bases)
        self._adapted = [k for k, layer in enumerate(layers) if isinstance(layer, LoraLinear)]
        ranks = sum(len(self._factors(k)[0]) for k in self._adapted)
        self._bases, self._weights = bases, _side_by_side(bases, ranks)
        self._second = self._weights.new_zeros(ranks, self._outputs)
        self._bias = self._weights.new_zeros(len(self._weights)) if any(base.bias is not None for base in bases) else None
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the adapters and biases as they are now."""
        row, column, starts = self._outputs, 0, [0]
        for base in self._bases:
            if self._bias is not None and base.bias is not None:
                self._bias[starts[-1] :][: base.out_features] = base.bias
            starts.append(starts[-1] + base.out_features)
        for k in self._adapted:
            first, second = self._factors(k)
            self._weights[row:][: len(first)] = first
            self._second[column:, starts[k] : starts[k + 1]][: len(first)] = second.T
            row, column = row + len(first), column + len(first)

    def __call__(self, states: Tensor) -> Tensor:
        """The outputs of all layers side by side, (..., sum of their outputs), of states (..., inputs)."""
        products = functional.linear(states, self._weights, self._bias).flatten(0, -2)
        outputs = products[:, : self._outputs]
        if self._adapted:
            outputs.addmm_(products[:, self._outputs :], self._second)
        return cast(Tensor, outputs.unflatten(0, states.shape[:-1]))

    def _factors(self, k: int) -> tuple[Tensor, Tensor]:
        return factors(cast(LoraLinear, self._layers[k]))


def _side_by_side(layers: Sequence[nn.Linear], more: int) -> Tensor:
    """The weights of all layers as the first rows of one tensor, (their outputs + more, inputs), which they become parts of."""
    weights = [layer.weight for layer in layers]
    lengths, inputs = [len(weight) for weight in weights], weights[0].shape[1]
    outputs = sum(lengths)
    before: Any = getattr(layers[0], _JOINED, None)  # as a product of these layers has left it
    if before is not None and len(before) >= outputs + more:
        parts = before[:outputs].split(lengths)
        if all(part.data_ptr() == weight.data_ptr() for part, weight in zip(parts, weights, strict=True)):
            return cast(Tensor, before[: outputs + more])
    joined = weights[0].data.new_zeros(outputs + more, inputs)
    for weight, part in zip(weights, joined[:outputs].split(lengths), strict=True):
        part.copy_(weight.data)
        weight.data = part
    setattr(layers[0], _JOINED, joined)
    return joined
