"""Tiny random models of several families of causal language models, each with its real pattern of layers."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests import tiny

VOCABULARY = 300
WINDOW = 6
"""Shorter than every prompt of the tests, so that windows matter."""

SIZE: dict[str, Any] = tiny.SIZE | {
    "vocab_size": VOCABULARY,
    "head_dim": 8,
    "sliding_window": WINDOW,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}
"""Settings of every family that has them."""

_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 4,
    "first_k_dense_replace": 1,
}
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
_SLIDING: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
OWN: dict[str, dict[str, Any]] = {
    "gemma2": _SLIDING | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": _SLIDING | {"query_pre_attn_scalar": 16},
    "gemma4_text": _SLIDING | {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 4, "global_head_dim": 16},
    "deepseek_v3": _LATENT,
    "qwen3_5_text": {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "shared_expert_intermediate_size": 16,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": _MAMBA | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 16},
    "bamba": _MAMBA | {"attn_layer_indices": [1]},
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 64},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
}
"""Settings of single families: their real pattern of layers, small."""


def tiny_config(family: str, **options: Any) -> PretrainedConfig:
    kind = CONFIG_MAPPING[family]
    known = set(kind().to_dict()) | set(kind.attribute_map)
    settings = {name: value for name, value in SIZE.items() if name in known}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    return kind(**{**settings, **ends, **OWN.get(family, {}), **options})


def tiny_model(family: str, **options: Any) -> PreTrainedModel:
    """A random model of a family, in evaluation mode."""
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(tiny_config(family, **options)).eval()
    return model
