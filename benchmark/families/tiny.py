"""Tiny random models of every family of causal language models in transformers, each with its real pattern of layers.

A family is a model type that `AutoModelForCausalLM` knows. Types that are also masked, sequence-to-sequence, speech or
multimodal models are left out: their text part has a type of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 300
WINDOW = 6
"""Shorter than every prompt of the tests, so that windows matter."""

_OTHER_TASKS = (
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
_NOT_A_TEXT_MODEL = {
    "trocr",
    "moshi",
    "bert-generation",
    "gemma4_assistant",
    "gemma4_unified_assistant",
    "git",
    "phi4_multimodal",
}
"""Decoders of images and speech, an encoder, and drafting heads of other models."""

SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,  # large enough that what is attended to matters
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
_LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_SLIDING: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
_CONV: dict[str, Any] = {"layer_types": ["conv", "full_attention"]}
_INDEXED = _LATENT | {"index_topk": 64, "index_head_dim": 8, "index_n_heads": 16}
"""Real models select from 2048 tokens and more, and have so many heads that no two scores are equal."""
OWN: dict[str, dict[str, Any]] = {
    "gemma2": _SLIDING | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": _SLIDING | {"query_pre_attn_scalar": 16},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 4,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 4,
        "laurel_rank": 4,
    },
    "gemma4_text": _SLIDING | {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 4, "global_head_dim": 16},
    "gemma4_unified_text": _SLIDING | {"global_head_dim": 16, "use_bidirectional_attention": None},
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "axk1", "glm4_moe_lite", "youtu", "minicpm3"), _LATENT),
    **dict.fromkeys(("deepseek_v32", "axk2", "glm_moe_dsa"), _INDEXED),
    "hy_v4": _INDEXED | {"hc_mult": 2},
    "longcat_flash": _LATENT
    | {"num_layers": 2, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "zero_expert_num": 2, "moe_topk": 2},
    "kimi_linear": _LATENT
    | {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_head_dim": 8,
        "linear_num_heads": 4,
        "num_experts_per_token": 2,
    },
    "bailing_hybrid": _LATENT
    | {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_head_dim": 8,
        "linear_num_heads": 4,
        "num_experts_per_token": 2,
        "num_expert_group": 1,
    },
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _LINEAR | {"shared_expert_intermediate_size": 16}),
    "qwen2_moe": {"shared_expert_intermediate_size": 16},
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), _CONV),
    "granitemoehybrid": _MAMBA | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 16},
    "bamba": _MAMBA | {"attn_layer_indices": [1]},
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 64},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 1,
        "ssm_state_size": 8,
        "moe_shared_expert_intermediate_size": 16,
    },
    "minimax": {"layer_types": ["linear_attention", "full_attention"], "block_size": 4},
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": WINDOW},
    "zamba2": _MAMBA
    | {
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "hybrid", "hybrid"],
        "hybrid_layer_ids": [1, 2],
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "chunk_size": 8,
        "num_key_value_heads": 4,
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
        "kv_channels": 8,
    },
    "zamba": {
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "hybrid", "hybrid"],
        "mamba_d_state": 8,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "num_key_value_heads": 4,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "xlstm": {"num_heads": 2, "chunk_size": 8, "embedding_dim": 128, "hidden_size": 128, "num_blocks": 2},
    "xlnet": {"d_head": 8},
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
    "cohere_compass_text": _SLIDING
    | {"rope_parameters": {name: {"rope_type": "default", "rope_theta": 10000.0} for name in _SLIDING["layer_types"]}},
    "dots3_note_text": _LATENT | {"shared_experts_intermediate_size": 16},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "qwen4_exp_text": _LINEAR
    | {
        "shared_expert_intermediate_size": 16,
        "hc_count": 2,
        "hc_lowrank": 8,
        "ngram_vocab_size_base": 300,
        "split_ngram_parts": 4,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
}
"""Settings of some families: their real pattern of layers, small."""


def families() -> list[str]:
    """The model types of causal language models."""
    known = set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - _NOT_A_TEXT_MODEL
    return sorted(known.difference(*_OTHER_TASKS))


def tiny_config(family: str, **options: Any) -> PretrainedConfig:
    """A small configuration of a family."""
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
