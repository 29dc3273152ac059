"""Files of others that the libraries cannot read: one line, whatever a library raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from tests.models.loading import edit, load, one_line, rngs

CONFIGS: list[dict[str, Any]] = [
    {"vocab_size": "800"},
    {"vocab_size": 0},
    {"num_attention_heads": 0},
    {"num_key_value_heads": 0},
    {"num_hidden_layers": 0},
    {"num_hidden_layers": 1.5},
    {"head_dim": 0},
    {"hidden_act": {"a": 1}},
    {"tie_word_embeddings": "maybe"},
    {"layer_types": ["evil"]},
    {"layer_types": ["evil", "evil"]},
    {"initializer_range": "x"},
    {"max_position_embeddings": "x"},
    {"pad_token_id": 10**20},
    {"rope_parameters": "x"},
    {"rope_parameters": {"rope_type": "evil"}},
    {"dtype": "evil"},
    {"id2label": "x"},
    {"text_config": {}},
    {"model_type": {}},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_a_configuration_that_transformers_cannot_read_is_one_line(folder: Path, changes: dict[str, Any]) -> None:
    edit(folder / "config.json", **changes)
    with pytest.raises(UserError) as error:
        load(folder)
    assert one_line(error).startswith(f"no model in the folder {str(folder)!r}: expected config.json, tokenizer and weights")


TOKENIZERS: list[tuple[str, bytes]] = [
    ("tokenizer.json", b"null"),
    ("tokenizer.json", b'{"model": {"type": "BPE"}}'),
    ("tokenizer_config.json", json.dumps({"model_max_length": "x"}).encode()),
    ("tokenizer_config.json", json.dumps({"added_tokens_decoder": [1]}).encode()),
    ("generation_config.json", b"[]"),
]


@pytest.mark.parametrize(("name", "content"), TOKENIZERS, ids=str)
def test_a_tokenizer_that_transformers_cannot_read_is_one_line(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        load(folder)
    one_line(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": {"rope_type": "linear", "factor": 1e308, "rope_theta": 1e4}},
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flex_attention", "experts_implementation": "grouped_mm"},
    ],
    ids=str,
)
def test_settings_that_need_not_be_followed_do_not_keep_a_model_from_playing(
    folder: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    """PyTorch computes the attention of a package that is not installed, and a line says so."""
    edit(folder / "config.json", **changes)
    agent = load(folder, max_new_tokens=2)
    assert agent.complete(prompts[:1], rngs(1))
    assert agent.model.config._attn_implementation == "sdpa"
    lines = [message for message in caplog.messages if "loaded with 'sdpa' or 'eager' instead" in message]
    assert len(lines) == sum("implementation" in name for name in changes)


def test_end_tokens_that_are_no_tokens_are_left_out(folder: Path, prompts: list[Prompt]) -> None:
    edit(folder / "generation_config.json", eos_token_id=["x", 3])
    agent = load(folder, max_new_tokens=2)
    assert agent.complete(prompts[:1], rngs(1))
    assert agent.engine.end_ids == {3, agent.tokenizer.eos_token_id}
