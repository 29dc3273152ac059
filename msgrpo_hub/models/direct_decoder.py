"""Common decoders computed by direct calls: what transformers' modules compute, without most of their calls.

A decoding step of a small model, or of few rows, spends more time between its operations than in them. Llama, Mistral, Qwen2
and Qwen3 differ in little: norms of queries and keys, biases, windows. Their modules are read once, the layers that have one
input become one product, and a forward pass is a loop over the layers.

`engine_check` compares it with the model's own passes, as it does every forward. Other families stay with their own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import SharedPrefix, base_of, shared_prefix_attention
from msgrpo_hub.models.few_rows import FewRowsLinear, JoinedLinear
from msgrpo_hub.models.lora import FixedProduct, JoinedLora, is_plain_lora
from msgrpo_hub.models.row_cache import RowCache
from msgrpo_hub.models.weights import adapters_in_use, held

# Shapes: U rows, Q new tokens of each, N hidden states, H query heads, J key heads, D head dimension, V tokens.

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""How their classes in transformers begin."""

_LATEST: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Base model → the decoder of it that was made or refreshed last, by its identity."""

Linear = Callable[[Tensor], Tensor]
Attention = Callable[["Layer", Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Norm:
    """Root mean square layer normalisation."""

    weight: Tensor
    epsilon: float
    at_once: bool
    """Whether numbers of 16 bits are rounded once, by one operation."""

    def __call__(self, states: Tensor) -> Tensor:
        if states.dtype == torch.float32 or self.at_once:
            return functional.rms_norm(states, self.weight.shape, self.weight, self.epsilon)
        scaled = functional.rms_norm(states.float(), self.weight.shape, None, self.epsilon)
        return self.weight * scaled.to(states.dtype)  # rounded before the weight, as the module does it


@dataclass(frozen=True)
class Layer:
    """What one layer computes with."""

    attention: Any
    """The module, for its index."""
    window: int | None
    """Positions that it attends to; None is all."""
    before_attention: Norm
    queries_keys_values: Linear
    of_queries: Norm | None
    of_keys: Norm | None
    out: Linear
    before_mlp: Norm
    gate_and_up: Linear
    activation: Linear
    down: Linear


class DirectDecoder:
    """The forward pass of one model over a shared prefix, while its weights and adapters stay as they are, or it is refreshed.

    Args:
        model: one that `is_direct` accepts, switched to acting.
        fixed: for recordings: the same few operations over the same memory, whatever values the adapters take.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, fixed: bool = False) -> None:
        self._model, self._fixed = model, fixed
        causal: Any = base_of(model)
        config = causal.config
        self.embed, self._rotary, self.head = causal.model.embed_tokens, causal.model.rotary_emb, _in_use(causal.lm_head)
        self.norm = Norm(causal.model.norm.weight, causal.model.norm.variance_epsilon, fixed)
        self.layers = [_layer(layer, config, fixed) for layer in causal.model.layers[: config.num_hidden_layers]]
        self._read = _what_is_read(model) if fixed else ()
        _LATEST[causal] = id(self)
        self._heads, self._key_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        """Dimensions of a head."""
        self._angles = torch.empty(0)
        self.sees_all = all(layer.window is None for layer in self.layers)
        """Whether every layer attends to all positions."""

    @property
    def is_latest(self) -> bool:
        """Whether no other decoder of the model has been made or refreshed since; fixed ones share the memory of adapters."""
        return not self._fixed or _LATEST[base_of(self._model)] == id(self)

    def refresh(self) -> bool:
        """Takes over new values of adapters and biases. Returns whether the decoder then computes what the model computes."""
        if not self._fixed or self._read != _what_is_read(self._model):
            return False
        _LATEST[base_of(self._model)] = id(self)
        for layer in self.layers:
            for product in (layer.queries_keys_values, layer.out, layer.gate_and_up, layer.down):
                if isinstance(product, FixedProduct):
                    product.refresh()
        return True

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
        length = mask.shape[-1] + (0 if shared is None else shared.cache.get_seq_length())
        cosines, sines = self.rotations(positions, length)

        def attention(layer: Layer, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = cache.update(keys, values, layer.attention.layer_idx)
            return shared_prefix_attention(
                layer.attention, queries, keys, values, mask, sliding_window=layer.window, shared_prefix=shared
            )[0]

        return cast(Tensor, self.head(self.norm(self.states(token_ids, cosines, sines, attention))[:, -keep:]))

    def states(self, token_ids: Tensor, cosines: Tensor, sines: Tensor, attention: Attention) -> Tensor:
        """The states after the last layer, (U, Q, hidden).

        Args:
            token_ids: (U, Q).
            cosines: of their positions; with the `sines`, from `rotations`.
            sines: of their positions.
            attention: layer, queries (U, H, Q, D), keys and values (U, J, Q, D) → what they attend to, (U, Q, H, D). It keeps
                the keys and values.
        """
        rows, new = token_ids.shape
        turned = self._heads + self._key_heads
        states = cast(Tensor, self.embed(token_ids))
        for layer in self.layers:
            heads = layer.queries_keys_values(layer.before_attention(states)).view(rows, new, -1, self.size)
            turning = heads[:, :, :turned]
            if layer.of_queries and layer.of_keys:
                queries, keys = turning.split([self._heads, self._key_heads], 2)
                turning = torch.cat([layer.of_queries(queries), layer.of_keys(keys)], 2)
            turning = turning * cosines + turning.roll(self.size // 2, -1) * sines
            queries, keys, values = turning[:, :, : self._heads], turning[:, :, self._heads :], heads[:, :, turned:]
            mixed = attention(layer, queries.contiguous().transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
            states = states + layer.out(mixed.view(rows, new, -1))
            gate, up = layer.gate_and_up(layer.before_mlp(states)).chunk(2, -1)
            states = states + layer.down(layer.activation(gate).mul_(up))
        return states

    def rotations(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions, (U, Q, 1, D) each; the sines of the first half are negative.

        All positions are below `length`. They are looked up, except in embeddings whose angles depend on the length.
        """
        if self._rotary.rope_type in ("dynamic", "longrope"):
            return _signed(*self._rotary(self.embed.weight, positions))
        if length > len(self._angles):
            all_positions = torch.arange(2 * length, device=positions.device)
            self._angles = torch.stack(_signed(*self._rotary(self.embed.weight, all_positions[None])), 2)[0]  # (length, 2, 1, D)
        cosines, sines = self._angles[positions].unbind(2)
        return cosines, sines


def _what_is_read(model: nn.Module) -> tuple[object, ...]:
    """The tensors and adapters that a fixed decoder of the model reads."""
    modules = list(model.modules())
    return tuple(tensor.data_ptr() for tensor in held(modules)), adapters_in_use(modules)


def is_direct(model: PreTrainedModel | PeftModel) -> bool:
    """Whether `DirectDecoder` computes the model: a known family as transformers has it, with or without LoRA, without hooks."""
    return is_known(model) and not hooked(model)


def hooked(model: nn.Module) -> str:
    """The first module with a hook, such as `model.embed_tokens`; empty without any."""
    modules = model.named_modules()
    return next((name or "it" for name, m in modules if m._forward_hooks or m._forward_pre_hooks or hasattr(m, "_hf_hook")), "")


def is_known(model: PreTrainedModel | PeftModel) -> bool:
    """Whether `DirectDecoder` knows what the model's own modules compute."""
    causal = base_of(model)
    family = next((name for name in FAMILIES if type(causal).__name__ == f"{name}ForCausalLM"), None)
    if family is None or not type(causal).__module__.startswith("transformers."):
        return False
    if isinstance(model, PeftModel) and any(config.is_prompt_learning for config in model.peft_config.values()):
        return False
    own = {f"{family}{part}" for part in ("DecoderLayer", "Attention", "MLP", "RMSNorm")}
    parts: list[nn.Module] = []
    for layer in cast(Any, causal).model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        parts += [layer, attention, mlp, layer.input_layernorm, layer.post_attention_layernorm]
    return {type(part).__name__ for part in parts} <= own


def _layer(layer: Any, config: Any, fixed: bool) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    everywhere = config.sliding_window if config.model_type == "mistral" else None  # others say it of each layer

    def norm(module: Any) -> Norm:
        return Norm(module.weight, module.variance_epsilon, fixed)

    return Layer(
        attention=attention,
        window=getattr(attention, "sliding_window", everywhere),
        before_attention=norm(layer.input_layernorm),
        queries_keys_values=_joined([attention.q_proj, attention.k_proj, attention.v_proj], fixed),
        of_queries=norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        of_keys=norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        out=_joined([attention.o_proj], fixed),
        before_mlp=norm(layer.post_attention_layernorm),
        gate_and_up=_joined([mlp.gate_proj, mlp.up_proj], fixed),
        activation=mlp.act_fn,
        down=_joined([mlp.down_proj], fixed),
    )


def _in_use(layer: nn.Module) -> nn.Module:
    """The layer that computes: the base of LoRA that is switched off, as while it is merged."""
    if type(layer) is LoraLinear and layer.disable_adapters and not layer.merged:
        return layer.base_layer
    return layer


def _joined(layers: Sequence[nn.Module], fixed: bool) -> Linear:
    """The outputs of all layers side by side."""
    used = [_in_use(layer) for layer in layers]
    if fixed and all(type(layer) is nn.Linear or is_plain_lora(layer) for layer in used):
        return FixedProduct(used)
    if all(map(is_plain_lora, used)):
        return JoinedLora(cast("list[LoraLinear]", used))
    if len(used) == 1:
        return used[0]
    if all(type(layer) in (nn.Linear, FewRowsLinear) for layer in used):
        return JoinedLinear(cast("list[nn.Linear]", used))
    return lambda states: torch.cat([layer(states) for layer in used], -1)  # quantised layers, variants of LoRA


def _signed(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """(U, Q, 1, D) each of (U, Q, D): x·cos + roll(x)·sin turns x, where rotating halves would negate one of x."""
    half = sines.shape[-1] // 2
    return cosines[:, :, None], torch.cat([-sines[..., :half], sines[..., half:]], -1)[:, :, None]
