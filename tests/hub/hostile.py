"""Changes that make a valid base or adapter hostile, and the list of files that were downloaded."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put

warm = LOADS_MODELS

Files = dict[str, bytes]
Change = Callable[[Files], object]

MARKER = "it ran"
"""A file that every payload makes, in the folder of the process."""
CODE = f"open({MARKER!r}, 'w')\n".encode()


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (MARKER, "w")


PICKLE = pickle.dumps(Payload())


def open_model(name: str, adapter: str | None = None) -> tuple[str, bool]:
    """In the client's process: loads a model. Returns the outcome, and whether a payload ran."""
    from msgrpo_hub.errors import UserError
    from msgrpo_hub.models import chat_templates
    from msgrpo_hub.models.language_model import LanguageModel

    chat_templates.SECONDS = 0.5  # so that a template without end does not hold up the tests
    try:
        LanguageModel.from_pretrained(name, adapter, temperature=0.0, max_new_tokens=1)
    except UserError as error:
        return str(error), Path(MARKER).exists()
    return "loaded", Path(MARKER).exists()


def downloaded(loopback: Loopback) -> set[str]:
    """Names of the files whose content was requested."""
    return {line.split("/resolve/")[1].partition("/")[2] for line in loopback.requests("^GET .*/resolve/")}


# ---- what an attacker does to sound files


def edit(name: str, **changes: Any) -> Change:
    return lambda files: files.update({name: json.dumps(json.loads(files[name]) | changes).encode()})


def write(**contents: bytes) -> Change:
    """`model_safetensors` stands for `model.safetensors`, and so on: the last underscore is the dot."""
    return lambda files: files.update({".".join(name.rsplit("_", 1)): content for name, content in contents.items()})


def both(*changes: Change) -> Change:
    return lambda files: [change(files) for change in changes]


def drop(name: str) -> Change:
    return lambda files: files.pop(name)


def settings(**changes: Any) -> Change:
    return edit("adapter_config.json", **changes)


def put_here(loopback: Loopback, files: Files) -> str:
    repo = loopback.repository()
    loopback.owner.call(put, repo, files)
    loopback.forget_requests()
    return repo


SETTINGS: dict[str, tuple[Change, str]] = {
    "another method than LoRA": (settings(peft_type="PROMPT_TUNING"), "is of type 'PROMPT_TUNING': expected LORA"),
    "a configuration of megatron": (
        settings(megatron_config={"a": 1}),
        "its megatron_config is {'a': 1}, which imports a module",
    ),
    "arguments for the tokenizer": (settings(tokenizer_kwargs={"trust_remote_code": True}), "its tokenizer_kwargs"),
    "a base at an absolute path": (settings(base_model_name_or_path="/etc"), "names '/etc' as its base: expected a repository"),
    "a base at home": (settings(base_model_name_or_path="~/secret"), "as its base: expected a repository"),
    "a base above": (settings(base_model_name_or_path="../secret"), "as its base: expected a repository"),
    "a base at an address": (settings(base_model_name_or_path="http://127.0.0.1/x"), "as its base: expected a repository"),
    "a revision that is a path": (settings(revision="../../../secret"), "its revision"),
    "an absurd rank": (settings(r=10**9), "its r is 1000000000, which is out of range"),
    "not JSON": (write(adapter_config_json=b"{"), "adapter_config.json is not JSON"),
    "deeply nested JSON": (write(adapter_config_json=b"[" * 200_000), "adapter_config.json is not JSON"),
}
"""Attacks in the settings of an adapter → (change, words of the refusal). `test_inspection` has every setting."""

HARMLESS: dict[str, Any] = {
    "auto_mapping": {"parent_library": "evil", "base_model_class": "C"},
    "megatron_core": "evil",
    "run_this": "evil",
    "runtime_config": {"ephemeral_gpu_offload": True},
    "corda_config": {"cache_file": "/etc/passwd"},
    "eva_config": {"rho": 2.0},
    "loftq_config": {"loftq_bits": 4},
}
"""Settings that nothing reads here, since PEFT does not get them."""

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
LONG = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3
SECRETIVE = "{{ cycler.__init__.__globals__.os.open('it ran', 64) }}{% for message in messages %}{% endfor %}"


def sharded(name: str) -> Change:
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": name}}
    return both(drop("model.safetensors"), lambda files: files.update({INDEX: json.dumps(index).encode()}))


BASES: dict[str, tuple[Change, str, set[str]]] = {
    "a pickle": (both(drop("model.safetensors"), write(pytorch_model_bin=PICKLE)), "has pytorch_model.bin, which can run", set()),
    "code for an architecture of its own": (
        both(edit(CONFIG, model_type="evil", auto_map={"AutoModelForCausalLM": "evil.M"}), write(evil_py=CODE)),
        "cannot load",
        {"model.safetensors"},
    ),
    "a quantisation that imports": (edit(CONFIG, quantization_config={"quant_method": "evil"}), "quantization_config", set()),
    "a kernel from another repository": (edit(CONFIG, _attn_implementation="evil/kernel"), "its _attn_implementation", set()),
    "weights elsewhere": (edit(CONFIG, transformers_weights="../x.safetensors"), "its transformers_weights", set()),
    "a model larger than its weights": (edit(CONFIG, num_hidden_layers=10**6), "far larger than its weights", set()),
    "an index that names a path above": (sharded("../x.safetensors"), "its index names the weights", {INDEX}),
    "an index that names a pickle": (sharded("model.bin"), "its index names the weights", {INDEX}),
    "an index of what is not there": (sharded("model-9.safetensors"), "no model-9.safetensors", {INDEX}),
    "a vocabulary that is a secret": (
        edit("tokenizer_config.json", vocab_file="/etc/passwd"),
        "its tokenizer's vocab_file",
        set(),
    ),
    "one that is hidden": (edit("tokenizer_config.json", vocab_file=".env"), "its tokenizer's vocab_file is '.env'", set()),
    "a type that writes to the terminal": (
        edit(CONFIG, model_type="\x1b[2Jgone"),
        "?[2Jgone",
        {"model.safetensors"},
    ),
    "a template that writes to the terminal": (
        write(chat_template_jinja=b"{{ raise_exception('\x1b[2Jgone') }}"),
        "does not work (?[2Jgone)",
        {"model.safetensors"},
    ),
    "arguments for the tokenizer": (
        edit("tokenizer_config.json", init_inputs=["/etc/passwd"]),
        "its tokenizer's init_inputs",
        set(),
    ),
    "a template without end": (
        write(chat_template_jinja=LONG.encode()),
        "is stopped: it takes more than 0.5 s for one prompt",
        {"model.safetensors"},
    ),
    "a template of two megabytes": (
        write(chat_template_jinja=b"{% for i in range(99999) %}twenty characters...{% endfor %}"),
        "renders 1,999,980 characters for one prompt",
        {"model.safetensors"},
    ),
    "a template that leaves its sandbox": (
        write(chat_template_jinja=SECRETIVE.encode()),
        "does not work (access to attribute '__init__'",
        {"model.safetensors"},
    ),
    "a header that is longer than the file": (
        write(model_safetensors=(2**40).to_bytes(8, "little") + bytes(3_000_000)),
        "is not a safetensors file",
        {"model.safetensors"},
    ),
}
