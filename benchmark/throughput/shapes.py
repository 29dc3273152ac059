"""Randomly initialised models of known shapes: speed depends only on the shape, and no download is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from msgrpo_hub.downloads.names import POCKET, pocket_path

_QWEN = {"vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True, "rope_theta": 1e6}

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        **{"vocab_size": 2048, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
    },
    "qwen2.5-0.5b": {
        **_QWEN,
        **{"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
        **{"num_attention_heads": 14, "num_key_value_heads": 2},
    },
    "qwen2.5-1.5b": {
        **_QWEN,
        **{"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28},
        **{"num_attention_heads": 12, "num_key_value_heads": 2},
    },
    "qwen2.5-3b": {
        **_QWEN,
        **{"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36},
        **{"num_attention_heads": 16, "num_key_value_heads": 2},
    },
}
"""Name → configuration of Qwen2; those of Qwen2.5 are as published."""


def model_folder(name: str, models: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> str:
    """The model to load for a shape. `pocket` stays as it is; others are made once in `models`, with its tokenizer.

    The tokenizer knows fewer tokens than a large vocabulary has; the others decode to nothing.
    """
    if name == POCKET:
        return POCKET
    folder = models / f"{name}-{str(dtype).removeprefix('torch.')}"
    if not (folder / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(pocket_path())
        torch.manual_seed(0)
        special = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        config = Qwen2Config(**SHAPES[name], **special)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                model = Qwen2ForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)
