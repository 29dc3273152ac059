"""A decoding step with Triton's kernels between its products, for layers with SiLU and heads of 16, 32, 64, … dimensions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor
from transformers.activations import SiLUActivation

from msgrpo_hub.models.direct_decoder import DirectDecoder
from msgrpo_hub.models.lora import FixedProduct

Pair = tuple[Tensor, Tensor]
"""Keys and values."""


def kernel_errors() -> tuple[type[Exception], ...]:
    """What a kernel that cannot be built ends with: too little memory on the chip, no compiler, no folder for its cache."""
    others = (OSError, ImportError, subprocess.SubprocessError)
    if find_spec("triton") is None:
        return others
    from triton.errors import TritonError

    return *others, TritonError


def has_kernels(decoder: DirectDecoder) -> bool:
    """Whether `fused_step` computes this decoder."""
    if find_spec("triton") is None or not _on_gpu(decoder.norm.weight):
        return False
    size, usual = decoder.size, (torch.nn.SiLU, SiLUActivation)
    products = [(layer.queries_keys_values, layer.out, layer.gate_and_up, layer.down) for layer in decoder.layers]
    fixed = all(isinstance(product, FixedProduct) for of_layer in products for product in of_layer)
    return (
        fixed and size >= 16 and size & (size - 1) == 0 and all(isinstance(layer.activation, usual) for layer in decoder.layers)
    )


def fused_step(
    decoder: DirectDecoder, own: Sequence[Pair], mask: Tensor, prefix: Sequence[Pair] | None, prefix_mask: Tensor | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """(token ids (U, 1), cosines, sines, place) → normed states after the last layer, (U, 1, hidden).

    Args:
        decoder: one that `has_kernels`.
        own: of each layer, keys and values of the rows, (U, J, L, D) each.
        mask: (U, 1, 1, L) additive, for them.
        prefix: of each layer, keys and values of the shared prefix, (J, P, D) each.
        prefix_mask: (1, 1, 1, P) additive, for them.
    """
    from msgrpo_hub.models import gpu_kernels  # imports Triton

    layers = decoder.layers
    after = [*(layer.before_attention for layer in layers[1:]), decoder.norm]

    def step(token_ids: Tensor, cosines: Tensor, sines: Tensor, place: Tensor) -> Tensor:
        mask.index_fill_(3, place, 0.0)
        states = decoder.embed(token_ids[:, 0])
        normed = layers[0].before_attention(states)
        for index, (layer, next_norm) in enumerate(zip(layers, after, strict=True)):
            norms = (layer.of_queries.weight, layer.of_keys.weight) if layer.of_queries and layer.of_keys else None
            mixed = gpu_kernels.attention(
                layer.queries_keys_values(normed),
                (cosines, sines),
                norms,
                layer.of_queries.epsilon if layer.of_queries else 0.0,
                place,
                own[index],
                mask,
                None if prefix is None else prefix[index],
                prefix_mask,
            )
            normed = gpu_kernels.added(states, layer.out(mixed), layer.before_mlp.weight, layer.before_mlp.epsilon)
            passed = gpu_kernels.gated(layer.gate_and_up(normed))
            normed = gpu_kernels.added(states, layer.down(passed), next_norm.weight, next_norm.epsilon)
        return normed[:, None]

    return step


def _on_gpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cuda"
