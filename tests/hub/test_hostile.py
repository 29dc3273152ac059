"""Hostile repositories and folders: no foreign code runs, nothing but needed files is downloaded, the refusal is one line."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from tests.hub.commands import Change, Files, downloaded, edit, put_here, write_files
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import Blob

warm = LOADS_MODELS

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

    chat_templates.SECONDS = 0.5  # for the endless template
    try:
        LanguageModel.from_pretrained(name, adapter, temperature=0.0, max_new_tokens=1)
    except UserError as error:
        return str(error), Path(MARKER).exists()
    return "loaded", Path(MARKER).exists()


def refusal(loopback: Loopback, source: str) -> str:
    """The message of a load that runs no foreign code."""
    message, ran = loopback.owner.call(open_model, source)
    assert (message.isprintable(), ran) == (True, False)
    return message


def in_cache(loopback: Loopback) -> set[str]:
    return {path.name for path in loopback.machine.link.rglob("*") if "snapshots" in path.parts and not path.is_dir()}


# ---- attacks: changes of sound files


def write(name: str, content: bytes) -> Change:
    return lambda files: files.update({name: content})


def both(*changes: Change) -> Change:
    return lambda files: [change(files) for change in changes]


def drop(name: str) -> Change:
    return lambda files: files.pop(name)


def settings(**changes: Any) -> Change:
    return edit("adapter_config.json", **changes)


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda files: files.update({LORA: save({key: change(value) for key, value in load(files[LORA]).items()})})


def sharded(name: str) -> Change:
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": name}}
    return both(drop(MODEL), write(INDEX, json.dumps(index).encode()))


CONFIG, MODEL, INDEX, TEMPLATE = "config.json", "model.safetensors", "model.safetensors.index.json", "chat_template.jinja"
SETTINGS, LORA, TOKENIZER = "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"
ENDLESS = b"{% for i in range(99999) %}" * 3 + b"{% endfor %}" * 3
LONG = b"{% for i in range(99999) %}twenty characters...{% endfor %}"
SECRETIVE = b"{{ cycler.__init__.__globals__.os.open('it ran', 64) }}{% for message in messages %}{% endfor %}"
NO_REPOSITORY = "as its base: expected a repository"

ADAPTERS: dict[str, tuple[Change, str, set[str]]] = {
    "another method than LoRA": (settings(peft_type="PROMPT_TUNING"), "is of type 'PROMPT_TUNING': expected LORA", {SETTINGS}),
    "a configuration of megatron": (settings(megatron_config={"a": 1}), "its megatron_config is {'a': 1}, which", {SETTINGS}),
    "arguments for its tokenizer": (settings(tokenizer_kwargs={"trust_remote_code": 1}), "its tokenizer_kwargs", {SETTINGS}),
    "a base at an absolute path": (settings(base_model_name_or_path="/etc"), f"'/etc' {NO_REPOSITORY}", {SETTINGS}),
    "a base above": (settings(base_model_name_or_path="../secret"), NO_REPOSITORY, {SETTINGS}),
    "a base at an address": (settings(base_model_name_or_path="http://127.0.0.1/x"), NO_REPOSITORY, {SETTINGS}),
    "a revision that is a path": (settings(revision="../../../secret"), "its revision", {SETTINGS}),
    "an absurd rank": (settings(r=10**9), "its r is 1000000000, which is out of range", {SETTINGS}),
    "deeply nested JSON": (write(SETTINGS, b"[" * 200_000), "adapter_config.json is not JSON", {SETTINGS}),
    "two megabytes": (write(SETTINGS, b"{}" + b" " * 2_000_000), "bytes; expected at most 1,000,000", set()),
    "a pickle": (both(drop(LORA), write("adapter_model.bin", PICKLE)), "has adapter_model.bin, which can run code", {SETTINGS}),
    "a pickle under another name": (write(LORA, PICKLE + b" " * 99), "is not a safetensors file", {SETTINGS, LORA}),
    "integers": (tensors(lambda tensor: tensor.to(torch.int8)), "is of type I8", {SETTINGS, LORA}),
    "no numbers": (tensors(lambda tensor: tensor * float("nan")), "weights that are not finite", {SETTINGS, LORA}),
    "another shape": (tensors(lambda tensor: tensor[:1].contiguous()), "does not fit its base", {SETTINGS, LORA}),
    "an endless expression": (settings(target_modules=r"(?:\w+\.?)+!"), "they take more than 5 s", {SETTINGS, LORA}),
    "a format that imports": (
        write("msgrpo.json", b'{"prompt_format": "evil:run"}'),
        "import code",
        {SETTINGS, LORA, "msgrpo.json"},
    ),
    "another template": (
        write("msgrpo.json", b'{"prompt_format": "json", "chat_template_kwargs": {"chat_template": "x"}}'),
        "'chat_template' in the msgrpo.json",
        {SETTINGS, "msgrpo.json"},
    ),
    "long play settings": (write("msgrpo.json", b" " * 10_001), "10,001 bytes; expected at most 10,000", {SETTINGS}),
}
"""Change of a sound adapter → words of the refusal, and all files that are downloaded. `test_inspection` has every setting."""

HARMLESS: dict[str, Any] = {
    "auto_mapping": {"parent_library": "evil", "base_model_class": "C"},
    "megatron_core": "evil",
    "run_this": "evil",
    "runtime_config": {"ephemeral_gpu_offload": True},
    "corda_config": {"cache_file": "/etc/passwd"},
    "eva_config": {"rho": 2.0},
    "loftq_config": {"loftq_bits": 4},
}
"""Settings that PEFT does not get here."""

OWN = both(edit(CONFIG, model_type="evil", auto_map={"AutoModelForCausalLM": "evil.M"}), write("evil.py", CODE))
BASES: dict[str, tuple[Change, str, bool]] = {
    "a pickle": (both(drop(MODEL), write("pytorch_model.bin", PICKLE)), "has pytorch_model.bin, which can run", False),
    "code for an architecture of its own": (OWN, "cannot load", True),
    "a quantisation that imports": (edit(CONFIG, quantization_config={"quant_method": "evil"}), "quantization_config", False),
    "a kernel from another repository": (edit(CONFIG, _attn_implementation="evil/kernel"), "its _attn_implementation", False),
    "weights elsewhere": (edit(CONFIG, transformers_weights="../x.safetensors"), "its transformers_weights", False),
    "a model larger than its weights": (edit(CONFIG, num_hidden_layers=10**6), "far larger than its weights", False),
    "an index that names a path above": (sharded("../x.safetensors"), "its index names the weights", False),
    "an index without its files": (sharded("model-9.safetensors"), "no model-9.safetensors", False),
    "a type that writes to the terminal": (edit(CONFIG, model_type="\x1b[2Jgone"), "?[2Jgone", True),
    "a long header": (write(MODEL, (2**40).to_bytes(8, "little") + bytes(3_000_000)), "is not a safetensors file", True),
    # also beside an adapter
    "a vocabulary that is a secret": (edit(TOKENIZER, vocab_file="/etc/passwd"), "its tokenizer's vocab_file", False),
    "arguments for the tokenizer": (edit(TOKENIZER, init_inputs=["/etc/passwd"]), "its tokenizer's init_inputs", False),
    "a template for the terminal": (write(TEMPLATE, b"{{ raise_exception('\x1b[2Jgone') }}"), "work (?[2Jgone)", True),
    "an endless template": (write(TEMPLATE, ENDLESS), "is stopped: it takes more than 0.5 s", True),
    "a template of two megabytes": (write(TEMPLATE, LONG), "renders 1,999,980 characters for one prompt", True),
    "a template that leaves its sandbox": (write(TEMPLATE, SECRETIVE), "does not work (access to attribute '__init__'", True),
}
"""Change of a sound base → words of the refusal, and whether the weights are downloaded before it."""


def test_without_an_attack_base_and_adapter_load_and_nothing_else_is_downloaded(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    beside = {"evil.py": CODE, "sitecustomize.py": CODE, "pytorch_model.bin": PICKLE, "training_args.bin": PICKLE}
    beside |= {"adapter_model.bin": PICKLE, "onnx/model.safetensors": b"", "custom_generate/generate.py": CODE}
    changes = (
        edit(CONFIG, auto_map={"AutoModelForCausalLM": "evil.M", "AutoConfig": "evil.C"}),  # code beside a known architecture
        edit(TOKENIZER, auto_map={"AutoTokenizer": ["evil.T", None]}),
    )
    base = put_here(loopback, sound_base | beside, *changes)
    assert loopback.owner.call(open_model, base) == ("loaded", False)
    assert downloaded(loopback) == in_cache(loopback) == set(sound_base)
    own = {name: sound_base[name] for name in (TEMPLATE, "tokenizer.json", TOKENIZER)}
    pinned = settings(base_model_name_or_path=base, revision=loopback.stored(base).head.oid, **HARMLESS)
    adapter = put_here(loopback, sound_adapter | beside | own, pinned)
    assert loopback.owner.call(open_model, adapter) == ("loaded", False)
    assert downloaded(loopback) == {*sound_adapter, *own}  # the base is in the cache


@pytest.mark.parametrize(("change", "words", "fetched"), ADAPTERS.values(), ids=ADAPTERS)
def test_a_hostile_adapter_is_refused_before_more_is_downloaded(
    loopback: Loopback, sound_adapter: Files, change: Change, words: str, fetched: set[str]
) -> None:
    assert words in refusal(loopback, put_here(loopback, sound_adapter, change))
    assert downloaded(loopback) == in_cache(loopback) == fetched


@pytest.mark.parametrize(("change", "words", "late"), BASES.values(), ids=BASES)
def test_a_hostile_base_is_refused(loopback: Loopback, sound_base: Files, change: Change, words: str, late: bool) -> None:
    assert words in refusal(loopback, put_here(loopback, sound_base, change))
    assert downloaded(loopback) <= {CONFIG, TOKENIZER, INDEX} | (set(sound_base) if late else set())


@pytest.mark.parametrize("attack", [*BASES][-6:])
def test_a_template_and_a_tokenizer_beside_an_adapter_pass_the_same_checks(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, attack: str
) -> None:
    change, words, _ = BASES[attack]
    beside = {name: text for name, text in sound_base.items() if "token" in name or "template" in name}
    assert words in refusal(loopback, put_here(loopback, sound_adapter | beside, change))


class Huge(bytes):
    def __len__(self) -> int:
        return 10**12


@pytest.mark.parametrize(
    ("name", "limit"), [(MODEL, 160 * 10**9), ("tokenizer.json", 64 * 10**6), (TEMPLATE, 10**6), (CONFIG, 10**6)]
)
def test_an_oversized_file_is_not_downloaded(loopback: Loopback, sound_base: Files, name: str, limit: int) -> None:
    repo = put_here(loopback, sound_base)
    loopback.stored(repo).head.files[name] = Blob(content=Huge(b"{}"))  # type: ignore[index]
    assert f"{name} would be {10**12:,} bytes; expected at most {limit:,}" in refusal(loopback, repo)
    assert not {name, MODEL} & downloaded(loopback)


# ---- names, and bases that cannot be used


NAMES = dict.fromkeys(["../x", "a/b/../c", "a/b/", "ada/..", "ada/x--y", "ada/x\n", "http://x/y", ""], "no model in the folder")
REVISIONS = dict.fromkeys(["ada/x@../../x", "ada/x@/etc", "ada/x@a//b", "ada/x@a b"], "expected the name of a branch, a tag or a")


@pytest.mark.parametrize(("name", "words"), (NAMES | REVISIONS).items())
def test_an_invalid_name_or_revision_never_reaches_the_hub(loopback: Loopback, name: str, words: str) -> None:
    assert words in loopback.owner.call(open_model, name)[0]
    assert not loopback.requests()


@pytest.mark.parametrize("card", [b"", b"---\nbase_model: [org/original, org/x]\n---\n"])
def test_quantised_and_gguf_copies_are_answered_with_the_original_on_their_card(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, card: bytes
) -> None:
    """Unsloth's adapters name the 4-bit copy that they were trained on."""
    original = "such as 'org/original'" if card else "the original model"
    named = {"README.md": card} if card else {}
    gguf = put_here(loopback, {"model-Q4_K_M.gguf": b"GGUF", **named} | ({} if card else {CONFIG: b"{}"}))
    message = refusal(loopback, gguf)
    assert message.startswith(f"{gguf!r} holds GGUF files, which cannot be trained on: use the original model in safetensors")
    assert original in message
    quantised = edit(CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    copy = put_here(loopback, sound_base | named, quantised)
    adapter = put_here(loopback, sound_adapter, settings(base_model_name_or_path=copy))
    message = refusal(loopback, adapter)
    assert message.startswith(f"the adapter {adapter!r} needs a base: {copy!r} is quantised (quantization_config)")
    assert original in message
    assert message.endswith(f"; name its base yourself: BASE+{adapter}")
    assert loopback.owner.call(open_model, "pocket", adapter) == ("loaded", False)


# ---- folders, and downloads that are whole


def test_an_adapter_in_a_folder_may_name_a_base_in_a_folder_which_is_refused_like_a_repository(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, tmp_path: Path
) -> None:
    change, words, _ = BASES["weights elsewhere"]
    change(hostile := dict(sound_base))
    assert words in refusal(loopback, str(write_files(tmp_path, hostile)))
    files = dict(sound_adapter)
    settings(base_model_name_or_path=str(write_files(tmp_path / "base", sound_base)))(files)
    assert loopback.owner.call(open_model, str(write_files(tmp_path / "adapter", files))) == ("loaded", False)


SMALL = {"a.txt": b"one", "b.txt": b"three"}


def download_twice(repo: str) -> str:
    """In the client's process: all files, after one of them; the client's own listing fails in between."""
    from huggingface_hub import HfApi, hf_hub_download

    from msgrpo_hub.downloads.client import snapshot
    from msgrpo_hub.errors import UserError

    commit = str(HfApi().model_info(repo).sha)
    hf_hub_download(repo, "a.txt", revision=commit)
    sizes = {name: len(content) for name, content in SMALL.items()}
    try:
        snapshot(repo, commit, sizes)
    except UserError as error:
        whole = snapshot(repo, commit, sizes)
        assert {name: (whole / name).read_bytes() for name in SMALL} == SMALL
        return str(error)
    return ""


def test_a_part_in_the_cache_does_not_pass_as_the_whole(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, SMALL)
    loopback.fail(f"GET /api/models/{repo}/", status=403)
    assert "arrived incomplete" in loopback.owner.call(download_twice, repo)
