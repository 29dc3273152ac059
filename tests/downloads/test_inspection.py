"""Checks of model files: inert settings pass, and a message names each refused one."""

from __future__ import annotations

import json
import shutil
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from peft import LoraConfig

from msgrpo_hub.downloads.fetching import base_of, fetch, list_files
from msgrpo_hub.downloads.inspection import (
    check_adapter,
    check_config,
    check_play_settings,
    check_tokenizer,
    is_revision,
    read_header,
    weight_files,
)
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError, shown

PLAIN = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8, "target_modules": ["q_proj"]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"task_type": "CAUSAL_LM", "target_modules": "all-linear"},
        {"rank_pattern": {"^layers.0.q_proj": 4}, "alpha_pattern": {"k_proj": 0.5}, "use_rslora": True},
        {"use_dora": True, "layers_to_transform": [0, 1], "layers_pattern": "layers", "target_modules": ["q_proj"]},
        {"use_bdlora": {"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["o_proj"], "nblocks": 2}},
        {"init_lora_weights": "gaussian", "lora_dropout": 0.1, "exclude_modules": ["lm_head"]},
    ],
    ids=str,
)
def test_every_plain_adapter_that_peft_writes_passes(tmp_path: Path, options: dict[str, Any]) -> None:
    """PEFT itself is the oracle: a setting that is off passes, in every version of PEFT."""
    LoraConfig(base_model_name_or_path="org/base", **options).save_pretrained(str(tmp_path))
    check_adapter(json.loads((tmp_path / "adapter_config.json").read_text()), "it")


names = st.text(min_size=1).filter(lambda name: name not in LoraConfig.__dataclass_fields__)


@given(name=names, value=st.one_of(st.just(True), st.text(min_size=1), st.integers(), st.floats()))
def test_an_unknown_setting_of_one_value_is_left_out_and_named(name: str, value: Any) -> None:
    used, unknown = check_adapter(PLAIN | {name: value}, "it")
    assert used.keys() == {"peft_type", "r", "target_modules"}
    assert unknown == [shown(name)]
    assert check_adapter(PLAIN | {name: None}, "it") == (used, [])


@given(name=names, value=st.one_of(st.just([0]), st.just({"a": None})))
def test_an_unknown_setting_of_more_than_one_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match="may run code, change the base or change what the weights mean"):
        check_adapter(PLAIN | {name: value}, "it")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("init_lora_weights", "pissa", "which changes the weights of the base"),
        ("task_type", "SEQ_CLS", "is not for writing text"),
        ("megatron_config", {"a": 1}, "imports a module that the adapter names"),
        ("layer_replication", [[0, 1]], "changes the layers of the base"),
        ("kasa_config", {"beta": 1}, "changes the weights of the base"),
        ("arrow_config", {"top_k": 1}, "needs other adapters"),
        ("alora_invocation_tokens", [1], "applies the adapter to a part of each prompt"),
        ("lora_dropout", "x", "is out of range"),
        ("lora_dropout", True, "is out of range"),
        ("lora_dropout", 1.5, "is out of range"),
        ("lora_alpha", float("nan"), "is out of range"),
        ("r", 10**9, "is out of range"),
    ],
)
def test_a_refused_setting_is_named_with_its_danger(name: str, value: Any, words: str) -> None:
    with pytest.raises(UserError, match=f"its {name} is .*{words}"):
        check_adapter(PLAIN | {name: value}, "it")


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.sampled_from(sorted(LoraConfig.__dataclass_fields__)), values))
def test_arbitrary_settings_pass_or_are_refused_in_one_line(settings: dict[str, Any]) -> None:
    try:
        check_adapter({"peft_type": "LORA"} | settings, "it")
    except UserError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017


@given(st.builds("{}{}{}".format, st.text(), st.sampled_from(["..", "//", "\n", "\\", " ", "~", "\0"]), st.text()))
@example("/etc/passwd")
@example(".hidden")
def test_no_path_is_a_revision(text: str) -> None:
    assert not is_revision(text)


def test_a_model_that_its_weights_can_hold_passes_and_a_larger_one_does_not() -> None:
    """The sizes of Qwen2.5-3B, 6.17e9 bytes in bfloat16."""
    config = {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "vocab_size": 151936}
    check_config(config, "it", 6_170_000_000)
    check_config({"text_config": config}, "it", 6_170_000_000)
    gpt2 = {"n_embd": 32, "n_inner": None, "n_layer": 10**7, "vocab_size": 300}
    for inside in (config, {"text_config": config}, gpt2, {"d_model": 32, "ffn_dim": 10**9, "num_hidden_layers": 2}):
        with pytest.raises(UserError, match="far larger than its weights"):
            check_config(inside, "it", 60_000_000)


@pytest.mark.parametrize("path", ["/etc/passwd", "~/.netrc", "../x", "a/../../x", "C:\\x", "\\\\server\\x", "..\\x"])
@pytest.mark.parametrize("name", ["vocab_file", "whatever"])
def test_a_path_in_the_settings_of_a_tokenizer_is_named(name: str, path: str) -> None:
    for value in (path, ["tokenizer.json", path]):
        with pytest.raises(UserError, match=f"its tokenizer's {name} is"):
            check_tokenizer({name: value}, "it")


def test_a_tokenizer_names_only_visible_files_of_its_model() -> None:
    check_tokenizer({"vocab_file": "vocab.txt", "spm_file": "source.spm", "separator": ".", "tokenizer_file": None}, "it")
    for name in (".env", "", "vocab.txt\n", "a b", "-x"):
        with pytest.raises(UserError, match="its tokenizer's vocab_file is"):
            check_tokenizer({"vocab_file": name}, "it")


@pytest.mark.parametrize("weight_map", [None, {}, [], {"a": 1}, {"a": "x.bin"}, {"a": "b/x.safetensors"}, {"a": ".safetensors"}])
def test_an_index_of_anything_else_is_refused(weight_map: Any) -> None:
    with pytest.raises(UserError, match="'it' is not loaded: its"):
        weight_files({"weight_map": weight_map}, "it")


@given(st.binary(max_size=300))
def test_an_arbitrary_header_passes_or_is_refused_in_one_line(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        path.write_bytes(content)
        try:
            read_header(path, "it")
        except UserError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017


def test_a_header_of_200_000_tensors_is_refused_before_it_is_read(tmp_path: Path) -> None:
    tensors = (b'"a%d":{"dtype":"F32","shape":[],"data_offsets":[%d,%d]}' % (k, 4 * k, 4 * k + 4) for k in range(200_000))
    text = b"{%s}" % b",".join(tensors)
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(800_000))
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(UserError, match=r"the header of model.safetensors has 13,\d+,\d+ bytes; expected at most 10,000,000"):
        read_header(path, "it")
    assert time.process_time() - started < 2
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_link_in_a_folder_leads_to_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(pocket_path(), tmp_path / "base"))
    (folder / name).rename(tmp_path / "secret")
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=f"{name} in '.*' is a link that leads elsewhere"):
        fetch(list_files(str(folder)))
    (tmp_path / "secret").rename(folder / "other")
    (folder / name).unlink()
    (folder / name).symlink_to("other")
    assert fetch(list_files(str(folder))).folder == folder


def test_a_snapshot_in_the_cache_of_the_hub_may_link_to_its_blobs(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pocket_path(), tmp_path / "models--a--b" / "snapshots" / "0123"))
    (tmp_path / "models--a--b" / "blobs").mkdir()
    (folder / "config.json").rename(tmp_path / "models--a--b" / "blobs" / "45")
    (folder / "config.json").symlink_to("../../blobs/45")
    assert fetch(list_files(str(folder))).folder == folder


def test_only_a_folder_may_name_a_folder_as_its_base(tmp_path: Path) -> None:
    settings = {"base_model_name_or_path": str(tmp_path)}
    assert base_of(settings, str(tmp_path)) == str(tmp_path)
    with pytest.raises(UserError, match="as its base: expected a repository"):
        base_of(settings, "org/adapter")


BAD: dict[str, tuple[Any, str]] = {
    "an object": ({"a": {}}, "a = '{}' in the msgrpo.json of 'x': expected a text of up to 1000 characters, a number"),
    "an infinite number": ({"a": float("inf")}, "a = 'inf' in the msgrpo.json"),
    "a novel": ({"a": "x" * 1001}, "expected a text of up to 1000 characters"),
    "another template": ({"chat_template": "x"}, "the variable 'chat_template' in the msgrpo.json of 'x' cannot be set"),
    "a name of Python": ({"__class__": 1}, "the variable '__class__'"),
    "too many": (dict.fromkeys(map("a{}".format, range(21)), 1), "21 variables in the msgrpo.json of 'x': expected at most 20"),
}


@pytest.mark.parametrize(("switches", "words"), BAD.values(), ids=BAD)
def test_variables_of_a_template_that_are_not_plain_are_refused_in_one_line(switches: Any, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_play_settings({"prompt_format": "json", "chat_template_kwargs": switches}, "x")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
