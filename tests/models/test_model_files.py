"""What the files of a model say before its weights are loaded agrees with what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from msgrpo_hub.models.endpoint import EndpointPolicy
from msgrpo_hub.models.loading import open_model
from msgrpo_hub.models.token_counts import CHARACTERS_PER_TOKEN, lengths_by_characters, served_tokenizer
from msgrpo_hub.players.sample_play import longest_prompts
from tests.models.loading import edit, load, save_adapter
from tests.models.test_context import HISTORY, SNAKE


def loaded_bytes(model: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_memory_of_the_weights_is_that_of_the_loaded_model(folder: Path, dtype: torch.dtype) -> None:
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(dtype).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("*.safetensors"))) > 1
    files = open_model(str(folder))
    assert files.dtype() == dtype
    assert files.weight_bytes() == loaded_bytes(load(folder).model)


def test_weights_stored_in_another_type_are_counted_in_that_of_the_configuration(folder: Path) -> None:
    stored = open_model(str(folder)).weight_bytes()
    edit(folder / "config.json", dtype="bfloat16")
    assert open_model(str(folder)).weight_bytes() == loaded_bytes(load(folder).model) == stored // 2


def test_weights_are_counted_in_the_type_that_is_chosen(folder: Path) -> None:
    stored = open_model(str(folder)).weight_bytes()
    assert open_model(str(folder)).weight_bytes("float16") == loaded_bytes(load(folder, dtype="float16").model) == stored // 2


def test_an_adapter_adds_its_matrices(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    files = open_model(str(qwen2_folder), str(adapter))
    assert files.weight_bytes() == loaded_bytes(load(qwen2_folder, adapter=str(adapter)).model)


def served(model: str) -> EndpointPolicy:
    return EndpointPolicy(name="x", model=model, url="http://127.0.0.1:9", temperature=1.0, max_new_tokens=8)


def test_a_served_model_that_is_named_after_a_folder_is_counted_with_its_tokenizer_alone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    edit(folder / "config.json", hidden_size=0)  # no size to be checked against weights that are elsewhere
    prompts = longest_prompts([SNAKE], HISTORY)
    encoder = served_tokenizer(served(str(folder)), {})
    assert encoder
    assert len(encoder.encode(prompts)) == len(prompts)


def test_another_served_model_is_counted_by_characters() -> None:
    assert served_tokenizer(served("gpt"), {}) is None
    for prompt, length in zip(prompts := longest_prompts([SNAKE], HISTORY), lengths_by_characters(prompts), strict=True):
        own = sum(len(text) for role, text in prompt.contents if role != "assistant")
        assert own / CHARACTERS_PER_TOKEN <= length.fixed <= own / CHARACTERS_PER_TOKEN + 1
        assert length.replies == 2
