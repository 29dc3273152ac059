"""Folders and repositories that load as a model, and those that are refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from msgrpo_hub.downloads.names import split_revision
from msgrpo_hub.errors import UserError
from tests.models.loading import edit, load, one_line, save_adapter
from tests.tiny import MakeFolder

pytestmark = pytest.mark.lowest


# ---- folders that cannot be loaded


@pytest.mark.parametrize("kind", ["missing", "empty", "no weights", "no tokenizer", "no model type", "broken config"])
def test_a_folder_that_holds_no_model_is_a_users_error(folder: Path, kind: str) -> None:
    if kind in ("missing", "empty"):
        shutil.rmtree(folder)
    if kind == "empty":
        folder.mkdir()
    if kind == "no weights":
        (folder / "model.safetensors").unlink()
    if kind == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
    if kind == "no model type":
        (folder / "config.json").write_text("{}")
    if kind == "broken config":
        (folder / "config.json").write_text("{")
    with pytest.raises(UserError) as error:
        load(folder)
    assert str(folder) in one_line(error)


def test_a_missing_adapter_is_a_users_error(qwen2_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load(qwen2_folder, adapter=str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in one_line(error)


CODE = """
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
Path({marker!r}).touch()
class MyConfig(Qwen2Config):
    model_type = {model_type!r}
class MyModel(Qwen2ForCausalLM):
    config_class = MyConfig
"""


@pytest.mark.parametrize("model_type", ["qwen2", "unheard_of"])
def test_code_that_comes_with_a_model_is_never_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    """Not even if somebody types yes: transformers asks at the terminal unless `trust_remote_code` is False."""
    marker = tmp_path / "it ran"
    (folder / "mine.py").write_text(CODE.format(marker=str(marker), model_type=model_type))
    classes = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    edit(folder / "config.json", model_type=model_type, auto_map=classes)
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "mine.MyTokenizer"]})
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    if model_type == "qwen2":  # transformers has its own code for this type
        assert type(load(folder).model).__module__.startswith("transformers.")
    else:
        with pytest.raises(UserError) as error:
            load(folder)
        assert str(folder) in one_line(error)
    assert not marker.exists()


# ---- revisions


@given(
    name=st.from_regex(r"[a-z]{1,8}(/[a-z.]{1,8})?", fullmatch=True), revision=st.from_regex(r"[a-z0-9./]{1,9}", fullmatch=True)
)
def test_a_revision_after_the_name_equals_a_revision_passed_separately(name: str, revision: str) -> None:
    assert split_revision(f"{name}@{revision}", None) == split_revision(name, revision) == (name, revision)


def test_a_path_with_an_at_sign_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "me@home").mkdir()
    assert split_revision(str(tmp_path / "me@home"), None) == (str(tmp_path / "me@home"), None)


def put_in_cache(cache: Path, repo: str, commits: dict[str, Path]) -> None:
    """Lays a repository out as `huggingface_hub` caches it; `commits` maps each revision to the folder of its files."""
    root = cache / "hub" / f"models--{repo.replace('/', '--')}"
    for number, (revision, folder) in enumerate(commits.items()):
        commit = f"{number:040x}"
        shutil.copytree(folder, root / "snapshots" / commit)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / revision).write_text(commit)


def test_revisions_of_base_and_adapter_are_kept_without_a_network(make_folder: MakeFolder, tmp_path: Path) -> None:
    """A model's sum of weights identifies it. The test needs its own process, because the environment sets the cache."""
    bases = {"main": make_folder("qwen2", seed=1), "v1": make_folder("qwen2", seed=2)}
    named = {"base_model_name_or_path": "org/base"}
    adapters = {
        "main": save_adapter(bases["main"], tmp_path / "a", seed=3, **named, revision="v1"),
        "old": save_adapter(bases["main"], tmp_path / "b", seed=4, **named, revision=None),
    }
    put_in_cache(tmp_path / "home", "org/base", bases)
    put_in_cache(tmp_path / "home", "org/adapter", adapters)
    names = [
        *(["org/base", None], ["org/base@v1", None], ["org/adapter", None], ["org/adapter@old", None]),
        *(["org/base", "org/adapter"], ["org/base@v1", "org/adapter@old"], [str(tmp_path / "a"), None]),
    ]
    code = f"""
import json
from msgrpo_hub.models import LanguageModel
def total(part, model):
    return sum(p.double().abs().sum().item() for n, p in model.named_parameters() if ("lora" in n) == (part == "adapter"))
models = [LanguageModel.from_pretrained(name, adapter).model for name, adapter in {names!r}]
sums = [[total(part, model) for part in ("base", "adapter")] for model in models]
try:
    LanguageModel.from_pretrained("org/base@v9")
except ValueError as error:
    sums.append(str(error))
print(json.dumps(sums))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *sums, refusal = json.loads(done.stdout)

    def weights(folder: Path) -> float:
        (file,) = folder.glob("*.safetensors")
        return sum(tensor.double().abs().sum().item() for tensor in load_file(file).values())

    main, v1, now, old = (weights(folder) for folder in (*bases.values(), *adapters.values()))
    expected = [(main, 0), (v1, 0), (v1, now), (main, old), (main, now), (v1, old), (v1, now)]
    assert [pytest.approx(pair) for pair in expected] == [tuple(pair) for pair in sums]
    assert "org/base" in refusal
    assert "v9" in refusal
