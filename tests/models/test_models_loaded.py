"""Folders and repositories either load as a model or are refused in one line."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import located
from tests.command import Command
from tests.models.loading import edit, load, refused, rngs, save_adapter
from tests.tiny import MakeFolder

# ---- folders that cannot be loaded


@pytest.mark.lowest
@pytest.mark.parametrize(
    "files",
    [None, "*", "model.safetensors", "tokenizer*.json", {"config.json": b"{}"}, {"config.json": b"{"}],
    ids=["missing", "empty", "no weights", "no tokenizer", "no model type", "broken config"],
)
def test_a_folder_that_holds_no_model_is_refused(folder: Path, files: str | dict[str, bytes] | None) -> None:
    for path in folder.glob(files) if isinstance(files, str) else []:
        path.unlink()
    for name, content in files.items() if isinstance(files, dict) else []:
        (folder / name).write_bytes(content)
    if files is None:
        shutil.rmtree(folder)
    assert str(folder) in refused(load, folder)


CONFIGS: list[dict[str, Any]] = [
    *({"vocab_size": "800"}, {"num_attention_heads": 0}, {"hidden_act": {"a": 1}}, {"layer_types": ["evil", "evil"]}),
    *({"rope_parameters": {"rope_type": "evil"}}, {"dtype": "evil"}, {"text_config": {}}, {"model_type": {}}),
    {"rope_parameters": {"x": {"rope_type": "linear", "factor": "4"}}},
]


BROKEN = [("config.json", changes) for changes in CONFIGS] + [
    ("tokenizer.json", "null"),
    ("tokenizer.json", '{"model": {"type": "BPE"}}'),
    ("tokenizer_config.json", {"added_tokens_decoder": [1]}),
    ("generation_config.json", "[]"),
]


@pytest.mark.parametrize(("name", "content"), BROKEN, ids=str)
def test_a_file_that_transformers_cannot_read_is_one_line(folder: Path, name: str, content: str | dict[str, Any]) -> None:
    if isinstance(content, dict):
        edit(folder / name, **content)
    else:
        (folder / name).write_text(content)
    assert repr(str(folder)) in refused(load, folder)


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


CODE = """
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
Path({marker!r}).touch()
class MyConfig(Qwen2Config):
    model_type = {model_type!r}
class MyModel(Qwen2ForCausalLM):
    config_class = MyConfig
"""


@pytest.mark.lowest
@pytest.mark.parametrize("model_type", ["qwen2", "unheard_of"])
def test_code_that_comes_with_a_model_is_never_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    """Even if the user types yes: transformers asks at the terminal unless `trust_remote_code` is False."""
    marker = tmp_path / "it ran"
    (folder / "mine.py").write_text(CODE.format(marker=str(marker), model_type=model_type))
    classes = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    edit(folder / "config.json", model_type=model_type, auto_map=classes)
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "mine.MyTokenizer"]})
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    if model_type == "qwen2":  # transformers has its own code for this type
        assert type(load(folder).model).__module__.startswith("transformers.")
    else:
        assert str(folder) in refused(load, folder)
    assert not marker.exists()


# ---- checkpoints as people publish them


def forget_padding(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder).pad_token is None


def write_missing_bos(folder: Path) -> None:
    """The template writes a bos token, as Qwen's and others' copied templates do, and the tokenizer has none."""
    assert AutoTokenizer.from_pretrained(folder).bos_token is None
    template = folder / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())


def shard(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


@pytest.mark.parametrize("change", [forget_padding, write_missing_bos, shard])
def test_a_checkpoint_acts_as_its_plain_twin(
    folder: Path, qwen2_folder: Path, prompts: list[Prompt], change: Callable[[Path], None]
) -> None:
    change(folder)
    both = [load(one, max_new_tokens=4).complete(prompts, rngs(len(prompts))) for one in (folder, qwen2_folder)]
    for ours, plain in zip(*both, strict=True):  # equal up to rounding: weights of another file are aligned differently
        assert (ours.prompt_ids, ours.token_ids) == (plain.prompt_ids, plain.token_ids)
        assert ours.log_probs == pytest.approx(plain.log_probs, abs=1e-5)


# ---- revisions


def put_in_cache(cache: Path, repo: str, commits: dict[str, Path]) -> None:
    """Lays a repository out as `huggingface_hub` caches it; `commits` maps each revision to the folder of its files."""
    root = cache / "hub" / f"models--{repo.replace('/', '--')}"
    for number, (revision, folder) in enumerate(commits.items()):
        shutil.copytree(folder, root / "snapshots" / f"{number:040x}")
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / revision).write_text(f"{number:040x}")


@pytest.mark.lowest
def test_revisions_of_base_and_adapter_are_kept_without_a_network(make_folder: MakeFolder, tmp_path: Path) -> None:
    """A model's sum of weights identifies it. The test needs its own process, because the environment sets the cache."""
    bases = {"main": make_folder("qwen2", seed=1), "v1": make_folder("qwen2", seed=2)}
    named = {"base_model_name_or_path": "org/base"}
    adapters = {
        "main": save_adapter(bases["main"], tmp_path / "a", seed=3, **named, revision="v1"),
        "old": save_adapter(bases["main"], tmp_path / "me@home", seed=4, **named, revision=None),
    }
    put_in_cache(tmp_path / "home", "org/base", bases)
    put_in_cache(tmp_path / "home", "org/adapter", adapters)

    def weights(folder: Path) -> float:
        (file,) = folder.glob("*.safetensors")
        return sum(tensor.double().abs().sum().item() for tensor in load_file(file).values())

    main, v1, now, old = (weights(folder) for folder in (*bases.values(), *adapters.values()))
    expected = {
        ("org/base", None): (main, 0),
        ("org/base@v1", None): (v1, 0),
        ("org/adapter", None): (v1, now),
        ("org/adapter@old", None): (main, old),
        ("org/base@v1", "org/adapter@old"): (v1, old),
        (str(adapters["old"]), None): (main, old),  # a path with an at sign is a path
    }
    code = f"""
import json
from msgrpo_hub.models import LanguageModel
def total(part, model):
    return sum(p.double().abs().sum().item() for n, p in model.named_parameters() if ("lora" in n) == (part == "adapter"))
models = [LanguageModel.from_pretrained(name, adapter).model for name, adapter in {[*expected]!r}]
print(json.dumps([[total(part, model) for part in ("base", "adapter")] for model in models]))
LanguageModel.from_pretrained("org/base@v9")
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert [pytest.approx(pair) for pair in expected.values()] == [tuple(pair) for pair in json.loads(done.stdout)], done.stderr
    refusal = done.stderr.splitlines()[-1]
    assert "org/base" in refusal
    assert "v9" in refusal


# ---- bases that an adapter names


@pytest.mark.parametrize(
    ("base", "why"),
    [
        (None, "it does not name its base model"),
        ("/home/other/models/llama", "no model in the folder '/home/other/models/llama'"),
        ("checkpoints/../llama", "no model in the folder 'checkpoints/../llama'"),
    ],
)
def test_a_base_that_cannot_be_used_is_answered_with_how_to_name_another(
    qwen2_folder: Path, tmp_path: Path, base: str | None, why: str
) -> None:
    adapter = str(save_adapter(qwen2_folder, tmp_path, base_model_name_or_path=base))
    for said in (refused(load, Path(adapter)), refused(resolve, adapter)):
        assert said.startswith(f"the adapter {adapter!r} needs a base: {why}")
        assert said.endswith(f"; name its base yourself: BASE+{adapter}")
    assert resolve(f"{qwen2_folder}+{adapter}").base == str(qwen2_folder)


def test_a_quantised_base_is_answered_with_how_to_name_another(folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(folder, tmp_path / "adapter")
    edit(folder / "config.json", quantization_config={"load_in_4bit": True})
    said = refused(load, adapter)
    assert "is quantised" in said
    assert "; use the original model; name its base yourself: BASE+" in said


@pytest.mark.parametrize("name", ["model-Q4_K_M.gguf", "model.GGUF"])
def test_a_gguf_file_or_a_folder_of_them_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    for source in (tmp_path, tmp_path / name):
        expected = f"{str(source)!r} holds GGUF files, which cannot be trained on: use the original model"
        assert refused(load, source).startswith(expected)


def test_a_relative_base_is_stored_absolute_and_another_model_in_its_place_is_noticed(
    msgrpo: Command, flags: list[str], tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = Path(shutil.copytree(tiny_model, tmp_path / "models" / "tiny"))
    relative = ["models/tiny" if flag == str(tiny_model) else flag for flag in flags]
    done = msgrpo("train", *relative, "--updates", 1, "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    adapter = tmp_path / "run" / "adapter"
    commit = json.loads((tmp_path / "run" / "summary.json").read_text())["base_commit"]
    settings = json.loads((adapter / "adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == (str(base), commit)
    load(adapter)
    assert "has changed" not in caplog.text
    edit(base / "generation_config.json", max_length=99)
    load(adapter)
    [line] = [record.getMessage() for record in caplog.records if "has changed" in record.getMessage()]
    assert line == f"the base in {base} has changed since the adapter {adapter} was trained on it"


def test_a_path_below_the_home_folder_is_found(qwen2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(qwen2_folder.parent))
    assert located(f"~/{qwen2_folder.name}") == resolve(f"~/{qwen2_folder.name}").base == str(qwen2_folder)
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter", base_model_name_or_path=f"~/{qwen2_folder.name}")
    assert "no model in the folder '~/" in refused(load, adapter)  # a path in a file is not expanded
