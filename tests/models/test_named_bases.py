"""Bases that an adapter names and that cannot be used, or are not the one that it was trained on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import located
from msgrpo_hub.errors import UserError
from tests.command import Command
from tests.models.loading import edit, load, one_line, save_adapter


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
    adapter = str(save_adapter(qwen2_folder, tmp_path / "adapter", base_model_name_or_path=base))
    for ask in (lambda: load(Path(adapter)), lambda: resolve(adapter)):
        with pytest.raises(UserError) as error:
            ask()
        assert one_line(error).startswith(f"the adapter {adapter!r} needs a base: {why}")
        assert one_line(error).endswith(f"; name its base yourself: BASE+{adapter}")
    assert resolve(f"{qwen2_folder}+{adapter}").base == str(qwen2_folder)


def test_a_quantised_base_is_answered_with_how_to_name_another(folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(folder, tmp_path / "adapter")
    edit(folder / "config.json", quantization_config={"load_in_4bit": True})
    with pytest.raises(UserError, match=r"is quantised .*; use the original model; name its base yourself: BASE\+") as error:
        load(adapter)
    one_line(error)


@pytest.mark.parametrize("name", ["model-Q4_K_M.gguf", "model.GGUF"])
def test_a_gguf_file_or_a_folder_of_them_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(UserError) as error:
            load(source)
        assert one_line(error).startswith(f"{str(source)!r} holds GGUF files, which cannot be trained on: use the original model")


def settings_of(adapter: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((adapter / "adapter_config.json").read_text())
    return settings


def test_a_relative_base_is_stored_absolute_and_another_model_in_its_place_is_noticed(
    msgrpo: Command, flags: list[str], tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = Path(shutil.copytree(tiny_model, tmp_path / "models" / "tiny"))
    relative = ["models/tiny" if flag == str(tiny_model) else flag for flag in flags]
    done = msgrpo("train", *relative, "--updates", 1, "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    adapter = tmp_path / "run" / "adapter"
    commit = json.loads((tmp_path / "run" / "summary.json").read_text())["base_commit"]
    settings = settings_of(adapter)
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
    with pytest.raises(UserError, match="no model in the folder '~/"):  # what a file says is not expanded
        load(adapter)
