"""Hostile adapters: dangerous settings, and malformed weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load, save

from tests.hub.hostile import (
    BASES,
    CODE,
    HARMLESS,
    PICKLE,
    SETTINGS,
    Change,
    Files,
    both,
    downloaded,
    drop,
    open_model,
    put_here,
    settings,
    write,
)
from tests.hub_server.lanes import Loopback


def in_cache(loopback: Loopback) -> set[str]:
    return {path.name for path in loopback.machine.link.rglob("*") if "snapshots" in path.parts and not path.is_dir()}


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    name = "adapter_model.safetensors"
    return lambda files: files.update({name: save({key: change(value) for key, value in load(files[name]).items()})})


@pytest.mark.parametrize("attack", SETTINGS)
def test_dangerous_adapter_settings_are_refused(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    """The weights are not even downloaded."""
    change, words = SETTINGS[attack]
    files = dict(sound_adapter)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)
    assert downloaded(loopback) == in_cache(loopback) == {"adapter_config.json"}


WEIGHTS: dict[str, tuple[Change, str, set[str]]] = {
    "a pickle": (
        both(drop("adapter_model.safetensors"), write(adapter_model_bin=PICKLE)),
        "has adapter_model.bin, which can run code when loaded",
        {"adapter_config.json"},
    ),
    "a pickle under another name": (write(adapter_model_safetensors=PICKLE + b" " * 99), "is not a safetensors file", set()),
    "a header that is longer than the file": (
        write(adapter_model_safetensors=(2**40).to_bytes(8, "little") + b"{}"),
        "is not a safetensors file",
        set(),
    ),
    "a header without a floor": (
        write(adapter_model_safetensors=(200_000).to_bytes(8, "little") + b"[" * 200_000),
        "the header of adapter_model.safetensors is not JSON",
        set(),
    ),
    "numbers of another kind": (tensors(lambda tensor: tensor.to(torch.int8)), "is of type 'I8'", set()),
    "numbers that are none": (tensors(lambda tensor: tensor * float("nan")), "weights that are not finite", set()),
    "tensors of another shape": (tensors(lambda tensor: tensor[:1].contiguous()), "does not fit its base", set()),
    "a regular expression without end": (settings(target_modules=r"(?:\w+\.?)+!"), "they take more than 2 s", set()),
    "one in a pattern": (settings(alpha_pattern={r"(?:\w+\.?)+!": 1}), "they take more than 2 s", set()),
    "settings of two megabytes": (
        lambda files: files.update({"adapter_config.json": files["adapter_config.json"] + b" " * 2_000_000}),
        "adapter_config.json would be 2 MB; expected at most 1 MB",
        {"nothing"},
    ),
}


def test_settings_that_nothing_reads_do_nothing(loopback: Loopback, sound_adapter: Files) -> None:
    files = dict(sound_adapter)
    settings(**HARMLESS)(files)
    assert loopback.owner.call(open_model, put_here(loopback, files)) == ("loaded", False)


@pytest.mark.parametrize("attack", WEIGHTS)
def test_malformed_adapter_weights_are_refused(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    change, words, only = WEIGHTS[attack]
    files = dict(sound_adapter)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)
    assert downloaded(loopback) == ((only or set(sound_adapter)) - {"nothing"})


def play_settings(text: str) -> Change:
    return lambda files: files.update({"msgrpo.json": text.encode()})


ALONE = 'expected {"prompt_format": NAME} in its msgrpo.json, and at most "chat_template_kwargs"'


PLAY_SETTINGS: dict[str, tuple[str, str, bool]] = {
    "a format that is code": ('{"prompt_format": "evil:run"}', "would import code", True),
    "a format that nobody knows": ('{"prompt_format": "jsn"}', "did you mean 'json'?", True),
    "a format that is an object": ('{"prompt_format": {"name": "json"}}', ALONE, False),
    "a format with a path": ('{"prompt_format": "../../evil"}', ALONE, False),
    "another setting": ('{"prompt_format": "json", "chat_template": "x"}', ALONE, False),
    "no setting": ("{}", ALONE, False),
    "a switch that is another template": (
        '{"prompt_format": "json", "chat_template_kwargs": {"chat_template": "x"}}',
        "'chat_template' in the msgrpo.json",
        False,
    ),
    "a list": ("[]", "msgrpo.json is not a JSON object", False),
    "brackets without end": ("[" * 9_999, "msgrpo.json is not JSON", False),
    "more than a name": ("{}" + " " * 10_000, "msgrpo.json would be 10,002 bytes; expected at most 10,000 bytes", False),
}
"""What stands in msgrpo.json, the words of the refusal, and whether it comes after the download, before anything is loaded."""


@pytest.mark.parametrize("attack", PLAY_SETTINGS)
def test_a_stored_prompt_format_that_is_not_built_in_is_refused(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    text, words, fetched = PLAY_SETTINGS[attack]
    files = dict(sound_adapter)
    play_settings(text)(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)
    assert ("adapter_model.safetensors" in downloaded(loopback)) == fetched


BESIDE = [
    name
    for name in BASES
    if "template" in name or "tokenizer" in name or "vocabulary that is" in name or name.startswith("one that")
]


@pytest.mark.parametrize("attack", BESIDE)
def test_a_template_and_a_tokenizer_beside_an_adapter_pass_the_checks_of_a_bases(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, attack: str
) -> None:
    change, words, _ = BASES[attack]
    files = sound_adapter | {name: text for name, text in sound_base.items() if "token" in name or "template" in name}
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)


def test_without_an_attack_base_and_adapter_load_and_nothing_else_is_downloaded(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    """The control: the model's repository also has code and pickles."""
    beside = {"evil.py": CODE, "sitecustomize.py": CODE, "pytorch_model.bin": PICKLE, "training_args.bin": PICKLE}
    beside |= {"adapter_model.bin": PICKLE, "onnx/model.safetensors": b"", "custom_generate/generate.py": CODE}
    base = put_here(loopback, sound_base | beside)
    assert loopback.owner.call(open_model, base) == ("loaded", False)
    assert downloaded(loopback) == in_cache(loopback) == set(sound_base)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=base, revision=loopback.refs(base)["refs/heads/main"])(files)
    own = {name: sound_base[name] for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")}
    adapter = put_here(loopback, files | beside | own)
    assert loopback.owner.call(open_model, adapter) == ("loaded", False)
    assert downloaded(loopback) == {*sound_adapter, *own}  # of the base nothing: it is in the cache
