"""A tiny Qwen3 with Qwen3's own chat template, whose weights say only which token follows which: it calls the tool `play`.

One-hot embeddings, a network that adds nothing to them, and an output layer that is a table of followers. It is a real model for
transformers, peft and TRL: it generates, has gradients and learns. Between an action and another it chooses at random.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.chat_template_utils import qwen3_chat_template  # type: ignore[import-untyped]

END, PAD = "<|im_end|>", "<|endoftext|>"
CALL = ("<tool_call>", '\n{"name": "play", "arguments": {"reply": "<action>')
ACTIONS = ("Left", "Down", "Right", "Up", "Sideways")
REST = ('</action>"}}\n', "</tool_call>", END)
_SURE = 20.0
"""The logit of a follower; all others have 0."""


def chain_tokenizer(texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """Bytes, one token for each piece of a tool call, and one for each long line of some texts, which keeps prompts short."""
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(bytes_)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in (PAD, "<|im_start|>", END)])
    lines = sorted({line for text in texts for line in text.splitlines() if len(line) > 20})
    pieces = [*lines, *CALL, *ACTIONS, *REST[:-1]]
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        chat_template=qwen3_chat_template,
        clean_up_tokenization_spaces=False,
    )


def chain_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The model; after the newline that ends Qwen3's generation prompt it begins a call."""
    size = -(-len(tokenizer) // 32) * 32
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=size,
            hidden_size=size,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=8192,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    [newline] = tokenizer.encode("\n", add_special_tokens=False)
    token = tokenizer.convert_tokens_to_ids
    followers = {newline: [CALL[0]], token(CALL[0]): [CALL[1]], token(CALL[1]): ACTIONS}
    followers |= {token(action): [REST[0]] for action in ACTIONS}
    followers |= {token(before): [after] for before, after in pairwise(REST)}
    with torch.no_grad():
        for layer in (model.model.layers[0].self_attn.o_proj, model.model.layers[0].mlp.down_proj, model.lm_head):
            layer.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for before, after in followers.items():
            model.lm_head.weight[list(map(token, after)), before] = _SURE / size**0.5  # the norm makes 1 of a one-hot √size
    return model


def save_chain_model(folder: Path, texts: Iterable[str] = ()) -> Path:
    tokenizer = chain_tokenizer(texts)
    chain_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
