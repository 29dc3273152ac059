"""Forward passes of common decoders by direct calls, without most of the calls that transformers' modules make.

Decoding steps of a small model, or of any model on a GPU, spend more time between their operations than in them. Llama, Mistral,
Qwen2 and Qwen3 differ little (norms of queries and keys, biases, windows), so one loop over the layers computes all of them.

`engine_check` compares the result with the model's own forward pass. Other families use their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import RowCache, SharedPrefix, base_of, shared_prefix_attention
from msgrpo_hub.models.weights import FewRowsLinear

# Shapes: U rows, Q new tokens of each, H query heads, J key heads, D head dimension, V tokens.

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""Prefixes of the class names in transformers."""

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """The functions of one layer."""

    attention: Any
    """Its attention module, for the layer index."""
    window: int | None
    """Positions that it attends to; None is all."""
    before_attention: Linear
    queries_keys_values: Linear
    of_queries: Linear | None
    of_keys: Linear | None
    out: Linear
    before_mlp: Linear
    gate_and_up: Linear
    activation: Linear
    down: Linear


class DirectDecoder:
    """The forward pass of one model over a shared prefix. It holds copies of the adapter's matrices.

    Args:
        model: a model that `is_direct` accepts, in evaluation mode. A decoder is valid until the weights change.
    """

    def __init__(self, model: PreTrainedModel | PeftModel) -> None:
        causal: Any = base_of(model)
        config, body = causal.config, causal.model
        self.embed, self.rotary, self.head, self.norm = body.embed_tokens, body.rotary_emb, causal.lm_head, _norm(body.norm)
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        everywhere = config.sliding_window if config.model_type == "mistral" else None  # other families have it in each layer
        self.layers = [
            Layer(
                attention=layer.self_attn,
                window=getattr(layer.self_attn, "sliding_window", everywhere),
                before_attention=_norm(layer.input_layernorm),
                queries_keys_values=_product([layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]),
                of_queries=_norm(layer.self_attn.q_norm) if hasattr(layer.self_attn, "q_norm") else None,
                of_keys=_norm(layer.self_attn.k_norm) if hasattr(layer.self_attn, "k_norm") else None,
                out=_product([layer.self_attn.o_proj]),
                before_mlp=_norm(layer.post_attention_layernorm),
                gate_and_up=_product([layer.mlp.gate_proj, layer.mlp.up_proj]),
                activation=layer.mlp.act_fn,
                down=_product([layer.mlp.down_proj]),
            )
            for layer in body.layers[: config.num_hidden_layers]
        ]

    def __call__(
        self, token_ids: Tensor, mask: Tensor, positions: Tensor, cache: RowCache, keep: int, shared: SharedPrefix | None
    ) -> Tensor:
        """The logits after the last `keep` tokens, (U, keep, V). Appends the tokens to the cache.

        Args:
            token_ids: (U, Q).
            mask: (U, 1, Q, length) additive, over the tokens of each row.
            positions: (U, Q) of the tokens, counted from the start of the shared prefix.
            cache: the keys and values of the rows.
            keep: at most Q.
            shared: the shared prefix, if there is one.
        """
        rows, new = token_ids.shape
        states = self.embed(token_ids)
        cosines, sines = self.rotary(states, positions)  # (U, Q, D) each
        half = self.size // 2
        sines = torch.cat([-sines[..., :half], sines[..., half:]], -1)[:, :, None]  # x·cos + roll(x)·sin rotates x
        cosines, rotated = cosines[:, :, None], self.heads + self.key_heads
        for layer in self.layers:
            # 1) queries, keys and values, (U, Q, heads, D)
            heads = layer.queries_keys_values(layer.before_attention(states)).view(rows, new, -1, self.size)
            turning = heads[:, :, :rotated]
            if layer.of_queries and layer.of_keys:
                queries, keys = turning.split([self.heads, self.key_heads], 2)
                turning = torch.cat([layer.of_queries(queries), layer.of_keys(keys)], 2)
            turning = turning * cosines + turning.roll(half, -1) * sines
            queries, keys, values = (
                part.transpose(1, 2) for part in (turning[:, :, : self.heads], turning[:, :, self.heads :], heads[:, :, rotated:])
            )
            # 2) attention
            keys, values = cache.update(keys, values, layer.attention.layer_idx)
            mixed, _ = shared_prefix_attention(
                layer.attention, queries.contiguous(), keys, values, mask, sliding_window=layer.window, shared_prefix=shared
            )
            states = states + layer.out(mixed.view(rows, new, -1))
            # 3) the feed-forward network
            gate, up = layer.gate_and_up(layer.before_mlp(states)).chunk(2, -1)
            states = states + layer.down(layer.activation(gate).mul_(up))
        return cast(Tensor, self.head(self.norm(states)[:, -keep:]))


def is_direct(model: PreTrainedModel | PeftModel) -> bool:
    """Whether `DirectDecoder` computes the model: a known family as transformers has it, with or without LoRA, without hooks."""
    causal = base_of(model)
    family = next((name for name in FAMILIES if type(causal).__name__ == f"{name}ForCausalLM"), None)
    if family is None or not type(causal).__module__.startswith("transformers."):
        return False
    if isinstance(model, PeftModel) and any(config.is_prompt_learning for config in model.peft_config.values()):
        return False
    if any(m._forward_hooks or m._forward_pre_hooks or hasattr(m, "_hf_hook") for m in model.modules()):
        return False
    parts: list[nn.Module] = []
    for layer in cast(Any, causal).model.layers:
        parts += [layer, layer.self_attn, layer.mlp, layer.input_layernorm, layer.post_attention_layernorm]
    return {type(part).__name__ for part in parts} <= {
        f"{family}{part}" for part in ("DecoderLayer", "Attention", "MLP", "RMSNorm")
    }


def _norm(module: Any) -> Linear:
    """Root mean square layer normalisation."""
    weight = module.weight
    return partial(functional.rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon)


def _product(layers: Sequence[nn.Module]) -> Linear:
    """The outputs of linear layers with one input, side by side."""
    used = [_in_use(layer) for layer in layers]
    if all(map(_is_plain_lora, used)):
        return _lora_product(cast("list[LoraLinear]", used))
    return used[0] if len(used) == 1 else lambda states: torch.cat([layer(states) for layer in used], -1)


def _in_use(layer: nn.Module) -> nn.Module:
    """The layer that computes: the base if LoRA is off, as while it is merged."""
    off = type(layer) is LoraLinear and layer.disable_adapters and not layer.merged
    return cast(LoraLinear, layer).base_layer if off else layer


def _is_plain_lora(layer: nn.Module) -> bool:
    """Whether exactly one adapter is added to an `nn.Linear` as in the LoRA paper."""
    if type(layer) is not LoraLinear or layer.disable_adapters or layer.merged:
        return False
    if type(layer.base_layer) not in (nn.Linear, FewRowsLinear):
        return False
    active = [name for name in layer.active_adapters if name in layer.lora_A]
    return len(active) == 1 and active[0] not in layer.lora_variant and layer.lora_B[active[0]].bias is None


def _lora_product(layers: Sequence[LoraLinear]) -> Linear:
    """Linear layers with one input and an adapter each, as W·x + (s·B)·(A·x). The matrices A of all layers are one product.

    The adapter is computed in the type of the base. PEFT computes it in float32, which a GPU with a 16-bit base does slowly.
    """
    bases = [cast(nn.Linear, layer.base_layer) for layer in layers]
    name_of = [next(name for name in layer.active_adapters if name in layer.lora_A) for layer in layers]
    named = list(zip(layers, name_of, strict=True))
    dtype = bases[0].weight.dtype
    first = torch.cat([cast(Tensor, layer.lora_A[name].weight) for layer, name in named]).to(dtype)
    second = [(layer.scaling[name] * cast(Tensor, layer.lora_B[name].weight)).to(dtype) for layer, name in named]
    ranks = [part.shape[1] for part in second]

    def product(states: Tensor) -> Tensor:
        inner = functional.linear(states, first).split(ranks, -1)
        outputs = [base(states) + functional.linear(z, b) for base, z, b in zip(bases, inner, second, strict=True)]
        return torch.cat(outputs, -1)

    return product
