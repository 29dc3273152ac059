"""Tiny models with random weights: in memory, with adapters, or in a folder with a real tokenizer, as on the Hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmark.pocket.build import BuildConfig, make_model
from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.games import make_game, stream

SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,  # large enough that attention matters
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "llama": {},
    "gemma2": {"head_dim": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"head_dim": 8, "sliding_window": None},
    "phi3": {},
    "opt": {"ffn_dim": 48, "init_std": 0.2},
}

MakeFolder = Callable[..., Path]
"""(model type, seed, options of its config) → a folder with weights, config and tokenizer; do not change it."""


def tiny_model(model_type: str = "qwen2", seed: int = 0, **options: Any) -> PreTrainedModel:
    """A model of two layers, in memory."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**{**SIZE, **FAMILIES.get(model_type, {}), **options}))


def adapted(model: PreTrainedModel, size: float = 0.2, adapters: Sequence[str] = ("default",), **options: Any) -> PeftModel:
    """The model with LoRA adapters on all its linear layers, both matrices random; the first one is active."""
    lora = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **options})
    adapted = get_peft_model(model, lora, adapters[0])
    for name in adapters[1:]:
        adapted.add_adapter(name, lora)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=size)
    return adapted.eval()


def tokenizer_of(prompts: Iterable[Prompt], size: int) -> PreTrainedTokenizerFast:
    return build_tokenizer([text for prompt in prompts for text in (prompt.system, prompt.user)], size)


def save_model(folder: Path, tokenizer: PreTrainedTokenizerFast, model_type: str, seed: int, **options: Any) -> Path:
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tiny_model(model_type, seed, **{"vocab_size": len(tokenizer), **ends, **options}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_trainable_model(folder: Path) -> Path:
    """A Qwen2 with many tokens that name an action, so that some of its replies have one."""
    games = [make_game("FrozenLake-NotSlippery-v1"), make_game("Snake-Solo-v1")]
    tokenizer = tokenizer_of(
        (build_prompt(g, g.initial_state(stream(s, "initial_state"))) for g in games for s in range(50)), 512
    )
    tokenizer.add_tokens([f"<action>{' ' * blanks}{action}</action>" for action in games[0].actions for blanks in range(24)])
    model = make_model(BuildConfig(output_dir=folder, width=32, layers=1), tokenizer)
    with torch.no_grad():
        model.get_input_embeddings().weight *= 3  # tied to the output, so that LoRA can make a token likely
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
