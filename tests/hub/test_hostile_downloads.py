"""A repository for each attack: refused in one line, before anything that could do harm is downloaded, and no code runs."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load, save
from transformers import AutoModelForCausalLM

from msgrpo_hub.downloads.names import pocket_path
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put
from tests.hub_server.store import Blob

warm = ("torch", "peft", "transformers.models.qwen2.modeling_qwen2", "msgrpo_hub.models.language_model")

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
    """Over there: loads a model and says what became of it, and whether a payload ran."""
    from msgrpo_hub.errors import UserError
    from msgrpo_hub.models import loading
    from msgrpo_hub.models.language_model import LanguageModel

    loading.TEMPLATE_SECONDS = 0.5  # so that a template without end does not hold up the tests
    try:
        LanguageModel.from_pretrained(name, adapter, temperature=0.0, max_new_tokens=1)
    except UserError as error:
        return str(error), Path(MARKER).exists()
    return "loaded", Path(MARKER).exists()


def downloaded(loopback: Loopback) -> set[str]:
    """Names of the files whose content was asked for."""
    return {line.split("/resolve/")[1].partition("/")[2] for line in loopback.requests("^GET .*/resolve/")}


def in_cache(loopback: Loopback) -> set[str]:
    return {path.name for path in loopback.machine.link.rglob("*") if "snapshots" in path.parts and not path.is_dir()}


@pytest.fixture(scope="session")
def sound_base() -> Files:
    return {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name not in ("README.md", "scores.json")}


@pytest.fixture(scope="session")
def sound_adapter(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A LoRA adapter of the built-in base, which is found by the end of its path wherever it is installed."""
    folder = tmp_path_factory.mktemp("adapter")
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(pocket_path()), lora).save_pretrained(str(folder))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("adapter_")}
    edit("adapter_config.json", base_model_name_or_path="msgrpo_hub/pocket/model", init_lora_weights=True)(files)
    return files


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


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    name = "adapter_model.safetensors"
    return lambda files: files.update({name: save({key: change(value) for key, value in load(files[name]).items()})})


def put_here(loopback: Loopback, files: Files) -> str:
    repo = loopback.repository()
    loopback.owner.call(put, repo, files)
    loopback.forget_requests()
    return repo


SETTINGS: dict[str, tuple[Change, str]] = {
    "another method than LoRA": (settings(peft_type="PROMPT_TUNING"), "is of type 'PROMPT_TUNING': expected LORA"),
    "a class to import": (settings(auto_mapping={"parent_library": "evil", "base_model_class": "C"}), "its auto_mapping"),
    "a configuration of megatron": (settings(megatron_config={"a": 1}), "its megatron_config"),
    "a module to import": (settings(megatron_core="evil"), "its megatron_core is 'evil'"),
    "arguments for the tokenizer": (settings(tokenizer_kwargs={"trust_remote_code": True}), "its tokenizer_kwargs"),
    "a setting that nobody knows": (settings(run_this="evil"), "its run_this is 'evil'"),
    "a base at an absolute path": (settings(base_model_name_or_path="/etc"), "names '/etc' as its base: expected a repository"),
    "a base at home": (settings(base_model_name_or_path="~/secret"), "as its base: expected a repository"),
    "a base above": (settings(base_model_name_or_path="../secret"), "as its base: expected a repository"),
    "a base at an address": (settings(base_model_name_or_path="http://127.0.0.1/x"), "as its base: expected a repository"),
    "a revision that is a path": (settings(revision="../../../secret"), "its revision"),
    "an absurd rank": (settings(r=10**9), "its r is 1000000000"),
    "no rank at all": (settings(r=True), "its r is True"),
    "an absurd rank for one layer": (settings(rank_pattern={"q_proj": 10**9}), "its rank_pattern"),
    "a regular expression without end": (settings(target_modules="(.*a)*(.*a)*(.*a)*b"), "its target_modules"),
    "one among the modules": (settings(exclude_modules=["(a+)+$"]), "its exclude_modules"),
    "one in a pattern": (settings(alpha_pattern={"(a+)+$": 1}), "its alpha_pattern"),
    "whole layers of its own": (settings(modules_to_save=["lm_head"]), "its modules_to_save"),
    "tokens of its own": (settings(trainable_token_indices=[1]), "its trainable_token_indices"),
    "layers a million times": (settings(layer_replication=[[0, 1]] * 9), "its layer_replication"),
    "a runtime": (settings(runtime_config={"ephemeral_gpu_offload": True}), "its runtime_config"),
    "a file to read": (settings(corda_config={"cache_file": "/etc/passwd"}), "its corda_config"),
    "another beginning": (settings(eva_config={"rho": 2.0}), "its eva_config"),
    "a beginning that changes the base": (settings(init_lora_weights="pissa"), "its init_lora_weights is 'pissa'"),
    "a quantisation": (settings(loftq_config={"loftq_bits": 4}), "its loftq_config"),
    "a number that is none": (settings(lora_alpha=float("nan")), "its lora_alpha is nan"),
    "no JSON": (write(adapter_config_json=b"{"), "adapter_config.json is no JSON"),
    "no object": (write(adapter_config_json=b"[1]"), "adapter_config.json is no JSON object"),
    "JSON without a floor": (write(adapter_config_json=b"[" * 200_000), "adapter_config.json is no JSON"),
}


@pytest.mark.parametrize("attack", SETTINGS)
def test_settings_of_an_adapter_that_are_not_known_to_be_inert(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    """The weights are not even downloaded."""
    change, words = SETTINGS[attack]
    files = dict(sound_adapter)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert ("\n" in message, ran) == (False, False)
    assert downloaded(loopback) == in_cache(loopback) == {"adapter_config.json"}


WEIGHTS: dict[str, tuple[Change, str, set[str]]] = {
    "a pickle": (
        both(drop("adapter_model.safetensors"), write(adapter_model_bin=PICKLE)),
        "has adapter_model.bin, which can run code when it is loaded",
        {"adapter_config.json"},
    ),
    "a pickle under another name": (write(adapter_model_safetensors=PICKLE + b" " * 99), "is no safetensors file", set()),
    "a header that is longer than the file": (
        write(adapter_model_safetensors=(2**40).to_bytes(8, "little") + b"{}"),
        "is no safetensors file",
        set(),
    ),
    "a header without a floor": (
        write(adapter_model_safetensors=(200_000).to_bytes(8, "little") + b"[" * 200_000),
        "the header of adapter_model.safetensors is no JSON",
        set(),
    ),
    "numbers of another kind": (tensors(lambda tensor: tensor.to(torch.int8)), "is of type 'I8'", set()),
    "numbers that are none": (tensors(lambda tensor: tensor * float("nan")), "weights that are not finite", set()),
    "tensors of another shape": (tensors(lambda tensor: tensor[:1].contiguous()), "does not fit its base", set()),
    "settings of two megabytes": (
        lambda files: files.update({"adapter_config.json": files["adapter_config.json"] + b" " * 2_000_000}),
        "adapter_config.json would be 2 MB; expected at most 1 MB",
        {"nothing"},
    ),
}


@pytest.mark.parametrize("attack", WEIGHTS)
def test_weights_of_an_adapter_that_are_none(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    change, words, only = WEIGHTS[attack]
    files = dict(sound_adapter)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert ("\n" in message, ran) == (False, False)
    assert downloaded(loopback) == ((only or set(sound_adapter)) - {"nothing"})


def test_without_an_attack_base_and_adapter_load_and_nothing_else_is_downloaded(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    """The control. What lies beside the model is code and pickles."""
    beside = {"evil.py": CODE, "sitecustomize.py": CODE, "pytorch_model.bin": PICKLE, "training_args.bin": PICKLE}
    beside |= {"adapter_model.bin": PICKLE, "onnx/model.safetensors": b"", "custom_generate/generate.py": CODE}
    base = put_here(loopback, sound_base | beside)
    assert loopback.owner.call(open_model, base) == ("loaded", False)
    assert downloaded(loopback) == in_cache(loopback) == set(sound_base)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=base, revision=loopback.refs(base)["refs/heads/main"])(files)
    adapter = put_here(loopback, files | beside)
    assert loopback.owner.call(open_model, adapter) == ("loaded", False)
    assert downloaded(loopback) == set(sound_adapter)  # of the base nothing: it is in the cache


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
    "one for a part of it": (edit(CONFIG, text_config={"quantization_config": {"a": 1}}), "quantization_config", set()),
    "a kernel from another repository": (edit(CONFIG, _attn_implementation="evil/kernel"), "its _attn_implementation", set()),
    "weights elsewhere": (edit(CONFIG, transformers_weights="../x.safetensors"), "its transformers_weights", set()),
    "a model larger than its weights": (edit(CONFIG, num_hidden_layers=10**6), "far larger than its weights", set()),
    "a vocabulary larger than its weights": (edit(CONFIG, vocab_size=10**9), "far larger than its weights", set()),
    "less than nothing": (edit(CONFIG, num_hidden_layers=-(10**9)), "far larger than its weights", set()),
    "an index that names a path above": (sharded("../x.safetensors"), "its index names the weights", {INDEX}),
    "an index that names an absolute path": (sharded("/etc/passwd"), "its index names the weights", {INDEX}),
    "an index that names a pickle": (sharded("model.bin"), "its index names the weights", {INDEX}),
    "an index of what is not there": (sharded("model-9.safetensors"), "no model-9.safetensors", {INDEX}),
    "a vocabulary that is a secret": (
        edit("tokenizer_config.json", vocab_file="/etc/passwd"),
        "its tokenizer's vocab_file",
        set(),
    ),
    "one that is a secret at home": (edit("tokenizer_config.json", vocab_file="~/.netrc"), "its tokenizer's vocab_file", set()),
    "one that is a secret above": (edit("tokenizer_config.json", merges_file="../../.env"), "its tokenizer's merges_file", set()),
    "arguments for the tokenizer": (
        edit("tokenizer_config.json", init_inputs=["/etc/passwd"]),
        "its tokenizer's init_inputs",
        set(),
    ),
    "a template without end": (
        write(chat_template_jinja=LONG.encode()),
        "the chat template takes more than",
        {"model.safetensors"},
    ),
    "a template of two megabytes": (
        write(chat_template_jinja=b"{% for i in range(99999) %}twenty characters...{% endfor %}"),
        "characters of one question",
        {"model.safetensors"},
    ),
    "a template that leaves its sandbox": (
        write(chat_template_jinja=SECRETIVE.encode()),
        "does not work (access to attribute '__init__'",
        {"model.safetensors"},
    ),
    "a header that is longer than the file": (
        write(model_safetensors=(2**40).to_bytes(8, "little") + bytes(3_000_000)),
        "is no safetensors file",
        {"model.safetensors"},
    ),
}


@pytest.mark.parametrize("attack", BASES)
def test_a_base_that_is_none(loopback: Loopback, sound_base: Files, attack: str) -> None:
    change, words, late = BASES[attack]
    files = dict(sound_base)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert ("\n" in message, ran) == (False, False)
    assert downloaded(loopback) <= {CONFIG, "tokenizer_config.json", INDEX} | (set(sound_base) if late - {INDEX} else set())


def test_code_beside_an_architecture_that_the_library_knows_is_not_run(loopback: Loopback, sound_base: Files) -> None:
    """Many sound models still have `auto_map`: the library's own code serves."""
    files = dict(sound_base) | {"evil.py": CODE}
    edit(CONFIG, auto_map={"AutoModelForCausalLM": "evil.M", "AutoConfig": "evil.C"})(files)
    edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]})(files)
    assert loopback.owner.call(open_model, put_here(loopback, files)) == ("loaded", False)
    assert "evil.py" not in downloaded(loopback)


class Huge(bytes):
    """A file of which the Hub says that it is larger than any disk."""

    def __len__(self) -> int:
        return 10**12


@pytest.mark.parametrize(
    ("name", "limit"),
    [("model.safetensors", "64,000"), ("tokenizer.json", "64"), ("chat_template.jinja", "1"), (CONFIG, "1")],
)
def test_a_file_larger_than_anybody_would_load_is_not_downloaded(
    loopback: Loopback, sound_base: Files, name: str, limit: str
) -> None:
    repo = put_here(loopback, sound_base)
    loopback.stored(repo).head.files[name] = Blob(content=Huge(b"{}"))  # type: ignore[index]
    message, _ = loopback.owner.call(open_model, repo)
    assert f"{name} would be 1,000,000 MB; expected at most {limit} MB" in message
    assert not {name, "model.safetensors"} & downloaded(loopback)


def test_an_adapter_whose_base_is_an_adapter(loopback: Loopback, sound_adapter: Files) -> None:
    first = put_here(loopback, sound_adapter)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=first)(files)
    message, _ = loopback.owner.call(open_model, put_here(loopback, files))
    assert f"names '{first}' as its base, which is an adapter too" in message


@pytest.mark.parametrize("name", ["../x", "a/b/c", "ada/..", "ada/x--y", "ada/x\n", "http://x/y", ""])
def test_a_name_that_is_none_reaches_no_hub(loopback: Loopback, name: str) -> None:
    message, _ = loopback.owner.call(open_model, name)
    assert message.startswith("no model in the folder")
    assert not loopback.requests()


@pytest.mark.parametrize("revision", ["../../x", "/etc", "a//b", "a b"])
def test_a_revision_that_is_a_path_reaches_no_hub(loopback: Loopback, revision: str) -> None:
    message, _ = loopback.owner.call(open_model, f"ada/x@{revision}")
    assert "expected the name of a branch, a tag or a commit" in message
    assert not loopback.requests()


# ---- a folder may have come from anywhere


def folder_of(files: Files, folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "attack", ["a pickle", "weights elsewhere", "an index that names a path above", "a vocabulary that is a secret"]
)
def test_a_hostile_folder_is_refused_like_a_hostile_repository(
    loopback: Loopback, sound_base: Files, tmp_path: Path, attack: str
) -> None:
    change, words, _ = BASES[attack]
    files = dict(sound_base)
    change(files)
    message, ran = loopback.owner.call(open_model, str(folder_of(files, tmp_path / "base")))
    assert words in message
    assert ("\n" in message, ran) == (False, False)


@pytest.mark.parametrize("attack", ["a class to import", "an absurd rank", "a regular expression without end"])
def test_a_hostile_adapter_in_a_folder_is_refused(loopback: Loopback, sound_adapter: Files, tmp_path: Path, attack: str) -> None:
    change, words = SETTINGS[attack]
    files = dict(sound_adapter)
    change(files)
    assert words in loopback.owner.call(open_model, "pocket", str(folder_of(files, tmp_path / "adapter")))[0]


def test_a_link_in_a_folder_leads_to_no_secret(loopback: Loopback, sound_base: Files, tmp_path: Path) -> None:
    folder = folder_of(sound_base, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").symlink_to("/etc/hostname")
    message, _ = loopback.owner.call(open_model, str(folder))
    assert re.search(r"chat_template.jinja in '.*' is a link that leads elsewhere", message)
    (folder / "config.json").rename(folder / "other.json")
    (folder / "config.json").symlink_to("other.json")
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").write_bytes(sound_base["chat_template.jinja"])
    assert loopback.owner.call(open_model, str(folder))[0] == "loaded"


def test_an_adapter_in_a_folder_may_name_a_base_in_a_folder(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, tmp_path: Path
) -> None:
    files = dict(sound_adapter)
    settings(base_model_name_or_path=str(folder_of(sound_base, tmp_path / "base")))(files)
    assert loopback.owner.call(open_model, str(folder_of(files, tmp_path / "adapter"))) == ("loaded", False)
