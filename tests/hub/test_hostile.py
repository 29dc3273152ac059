"""Hostile repositories and folders: no foreign code runs, nothing more than needed is downloaded, and the refusal is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from tests.hub.hostile import (
    BASES,
    CODE,
    CONFIG,
    HARMLESS,
    INDEX,
    PICKLE,
    SETTINGS,
    Change,
    Files,
    both,
    downloaded,
    drop,
    edit,
    open_model,
    put_here,
    settings,
    write,
)
from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import create, put
from tests.hub_server.store import Blob

warm = LOADS_MODELS


def in_cache(loopback: Loopback) -> set[str]:
    return {path.name for path in loopback.machine.link.rglob("*") if "snapshots" in path.parts and not path.is_dir()}


def refusal(loopback: Loopback, source: str) -> str:
    """The message of a load that runs no foreign code."""
    message, ran = loopback.owner.call(open_model, source)
    assert (message.isprintable(), ran) == (True, False)
    return message


def test_without_an_attack_base_and_adapter_load_and_nothing_else_is_downloaded(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    """The control: the repositories also have code and pickles."""
    beside = {"evil.py": CODE, "sitecustomize.py": CODE, "pytorch_model.bin": PICKLE, "training_args.bin": PICKLE}
    beside |= {"adapter_model.bin": PICKLE, "onnx/model.safetensors": b"", "custom_generate/generate.py": CODE}
    base = put_here(loopback, sound_base | beside)
    assert loopback.owner.call(open_model, base) == ("loaded", False)
    assert downloaded(loopback) == in_cache(loopback) == set(sound_base)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=base, revision=loopback.refs(base)["refs/heads/main"], **HARMLESS)(files)
    own = {name: sound_base[name] for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")}
    adapter = put_here(loopback, files | beside | own)
    assert loopback.owner.call(open_model, adapter) == ("loaded", False)
    assert downloaded(loopback) == {*sound_adapter, *own}  # of the base nothing: it is in the cache


@pytest.mark.parametrize("attack", SETTINGS)
def test_dangerous_adapter_settings_are_refused_before_the_weights_are_downloaded(
    loopback: Loopback, sound_adapter: Files, attack: str
) -> None:
    change, words = SETTINGS[attack]
    files = dict(sound_adapter)
    change(files)
    assert words in refusal(loopback, put_here(loopback, files))
    assert downloaded(loopback) == in_cache(loopback) == {"adapter_config.json"}


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    name = "adapter_model.safetensors"
    return lambda files: files.update({name: save({key: change(value) for key, value in load(files[name]).items()})})


WEIGHTS: dict[str, tuple[Change, str, set[str] | None]] = {
    "a pickle": (
        both(drop("adapter_model.safetensors"), write(adapter_model_bin=PICKLE)),
        "has adapter_model.bin, which can run code when loaded",
        {"adapter_config.json"},
    ),
    "a pickle under another name": (write(adapter_model_safetensors=PICKLE + b" " * 99), "is not a safetensors file", None),
    "a header that is longer than the file": (
        write(adapter_model_safetensors=(2**40).to_bytes(8, "little") + b"{}"),
        "is not a safetensors file",
        None,
    ),
    "integers": (tensors(lambda tensor: tensor.to(torch.int8)), "is of type I8", None),
    "numbers that are not finite": (tensors(lambda tensor: tensor * float("nan")), "weights that are not finite", None),
    "tensors of another shape": (tensors(lambda tensor: tensor[:1].contiguous()), "does not fit its base", None),
    "a regular expression without end": (settings(target_modules=r"(?:\w+\.?)+!"), "they take more than 5 s", None),
    "settings of two megabytes": (
        lambda files: files.update({"adapter_config.json": files["adapter_config.json"] + b" " * 2_000_000}),
        "bytes; expected at most 1,000,000",
        set(),
    ),
}


@pytest.mark.parametrize("attack", WEIGHTS)
def test_malformed_adapters_are_refused(loopback: Loopback, sound_adapter: Files, attack: str) -> None:
    change, words, only = WEIGHTS[attack]
    files = dict(sound_adapter)
    change(files)
    assert words in refusal(loopback, put_here(loopback, files))
    assert downloaded(loopback) == (set(sound_adapter) if only is None else only)


@pytest.mark.parametrize(
    ("text", "words", "fetched"),
    [
        ('{"prompt_format": "evil:run"}', "would import code", True),
        ('{"prompt_format": "../../evil"}', 'expected {"prompt_format": NAME} in its msgrpo.json', False),
        (
            '{"prompt_format": "json", "chat_template_kwargs": {"chat_template": "x"}}',
            "'chat_template' in the msgrpo.json",
            False,
        ),
        ("[" * 9_999, "msgrpo.json is not JSON", False),
        ("{}" + " " * 10_000, "msgrpo.json would be 10,002 bytes; expected at most 10,000", False),
    ],
)
def test_hostile_play_settings_are_refused(
    loopback: Loopback, sound_adapter: Files, text: str, words: str, fetched: bool
) -> None:
    assert words in refusal(loopback, put_here(loopback, sound_adapter | {"msgrpo.json": text.encode()}))
    assert ("adapter_model.safetensors" in downloaded(loopback)) == fetched


@pytest.mark.parametrize("attack", BASES)
def test_a_hostile_base_is_refused(loopback: Loopback, sound_base: Files, attack: str) -> None:
    change, words, late = BASES[attack]
    files = dict(sound_base)
    change(files)
    assert words in refusal(loopback, put_here(loopback, files))
    assert downloaded(loopback) <= {CONFIG, "tokenizer_config.json", INDEX} | (set(sound_base) if late - {INDEX} else set())


@pytest.mark.parametrize("attack", [name for name in BASES if "template" in name or "tokenizer" in name])
def test_a_template_and_a_tokenizer_beside_an_adapter_pass_the_same_checks(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, attack: str
) -> None:
    change, words, _ = BASES[attack]
    files = sound_adapter | {name: text for name, text in sound_base.items() if "token" in name or "template" in name}
    change(files)
    assert words in refusal(loopback, put_here(loopback, files))


def test_code_beside_an_architecture_that_the_library_knows_is_not_run(loopback: Loopback, sound_base: Files) -> None:
    """Many sound models still have `auto_map`; the library's own code loads them."""
    files = dict(sound_base) | {"evil.py": CODE}
    edit(CONFIG, auto_map={"AutoModelForCausalLM": "evil.M", "AutoConfig": "evil.C"})(files)
    edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]})(files)
    assert loopback.owner.call(open_model, put_here(loopback, files)) == ("loaded", False)
    assert "evil.py" not in downloaded(loopback)


class Huge(bytes):
    """A file that claims to be larger than any disk."""

    def __len__(self) -> int:
        return 10**12


@pytest.mark.parametrize(
    ("name", "limit"),
    [("model.safetensors", 64 * 10**9), ("tokenizer.json", 64 * 10**6), ("chat_template.jinja", 10**6), (CONFIG, 10**6)],
)
def test_an_oversized_file_is_not_downloaded(loopback: Loopback, sound_base: Files, name: str, limit: int) -> None:
    repo = put_here(loopback, sound_base)
    loopback.stored(repo).head.files[name] = Blob(content=Huge(b"{}"))  # type: ignore[index]
    assert f"{name} would be {10**12:,} bytes; expected at most {limit:,}" in refusal(loopback, repo)
    assert not {name, "model.safetensors"} & downloaded(loopback)


# ---- names


@pytest.mark.parametrize("name", ["../x", "a/b/../c", "a/b/", "ada/..", "ada/x--y", "ada/x\n", "http://x/y", ""])
def test_an_invalid_name_never_reaches_the_hub(loopback: Loopback, name: str) -> None:
    assert loopback.owner.call(open_model, name)[0].startswith("no model in the folder")
    assert not loopback.requests()


@pytest.mark.parametrize("revision", ["../../x", "/etc", "a//b", "a b"])
def test_a_revision_that_is_a_path_never_reaches_the_hub(loopback: Loopback, revision: str) -> None:
    assert "expected the name of a branch, a tag or a commit" in loopback.owner.call(open_model, f"ada/x@{revision}")[0]
    assert not loopback.requests()


def test_an_adapter_whose_base_is_an_adapter_is_refused(loopback: Loopback, sound_adapter: Files) -> None:
    first = put_here(loopback, sound_adapter)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=first)(files)
    assert f"names '{first}' as its base, but that is also an adapter" in refusal(loopback, put_here(loopback, files))


def test_an_adapter_of_a_quantised_model_is_answered_with_how_to_name_another_base(
    loopback: Loopback, sound_base: Files, sound_adapter: Files
) -> None:
    files = dict(sound_base)
    edit(CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})(files)
    copy, files = put_here(loopback, files), dict(sound_adapter)
    settings(base_model_name_or_path=copy)(files)
    adapter = put_here(loopback, files)
    assert refusal(loopback, adapter).endswith(f"use the original model; name its base yourself: BASE+{adapter}")
    assert loopback.owner.call(open_model, "pocket", adapter) == ("loaded", False)


# ---- folders


def folder_of(files: Files, folder: Path) -> str:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize("attack", ["a pickle", "weights elsewhere", "an index that names a path above"])
def test_a_hostile_folder_is_refused_like_a_hostile_repository(
    loopback: Loopback, sound_base: Files, tmp_path: Path, attack: str
) -> None:
    change, words, _ = BASES[attack]
    files = dict(sound_base)
    change(files)
    assert words in refusal(loopback, folder_of(files, tmp_path / "base"))


def test_an_adapter_in_a_folder_may_name_a_base_in_a_folder(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, tmp_path: Path
) -> None:
    files = dict(sound_adapter)
    settings(base_model_name_or_path=folder_of(sound_base, tmp_path / "base"))(files)
    assert loopback.owner.call(open_model, folder_of(files, tmp_path / "adapter")) == ("loaded", False)


# ---- downloads are whole


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


def test_a_part_in_the_cache_is_not_taken_for_the_whole(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    loopback.owner.call(put, repo, SMALL)
    loopback.fail("unavailable", where=f"GET /api/models/{repo}/", status=403)
    assert "arrived incomplete" in loopback.owner.call(download_twice, repo)
