"""Repositories whose weights cannot be used, and whose cards name the original."""

from __future__ import annotations

import pytest

from tests.hub.hostile import CONFIG, Files, edit, open_model, put_here, settings
from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

CARD = b"---\nbase_model: meta-llama/Llama-3.2-1B-Instruct\n---\n"


@pytest.mark.parametrize("base_model", ["org/original", ["org/original", "org/other"]], ids=str)
def test_a_repository_of_gguf_files_is_answered_with_the_original(loopback: Loopback, base_model: object) -> None:
    card = f"---\nbase_model: {base_model}\n---\n".encode()
    repo = put_here(loopback, {"model-Q4_K_M.gguf": b"GGUF", "README.md": card})
    message, _ = loopback.owner.call(open_model, repo)
    assert message == (
        f"{repo!r} holds GGUF files, which cannot be trained on: use the original model in safetensors, such as 'org/original'"
    )
    repo = put_here(loopback, {"model-Q4_K_M.gguf": b"GGUF", "config.json": b"{}", "README.md": b"# A model"})
    message, _ = loopback.owner.call(open_model, repo)
    assert message.endswith("use the original model in safetensors")


def test_an_adapter_of_a_model_in_4_bits_is_answered_with_the_original_and_loads_on_it(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    """As Unsloth writes it: the adapter names the copy in 4 bits that it was trained on."""
    files = dict(sound_base) | {"README.md": CARD}
    edit(CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})(files)
    copy, files = put_here(loopback, files), dict(sound_adapter)
    settings(base_model_name_or_path=copy)(files)
    adapter = put_here(loopback, files)
    message, _ = loopback.owner.call(open_model, adapter)
    assert message == (
        f"the adapter {adapter!r} needs a base: {copy!r} is quantised (quantization_config): expected plain weights; use the "
        f"original model, such as 'meta-llama/Llama-3.2-1B-Instruct'; name its base yourself: BASE+{adapter}"
    )
    assert loopback.owner.call(open_model, "pocket", adapter) == ("loaded", False)
