"""A folder with models, suites and configurations for wrong commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.cli.suites import FIRM, SNAKE, write_suite
from tests.cli.suites import run as run


@pytest.fixture(scope="session")
def place(tiny_model: Path, finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(tiny_model, folder / "base")
    shutil.copytree(finished_run, folder / "run")
    (folder / "empty").mkdir()
    (folder / "locked" / ".lock").mkdir(parents=True)
    write_suite(folder / "lake.toml", 3, FIRM)
    write_suite(folder / "snakes.toml", 3, SNAKE)
    (folder / "wrong.toml").write_text(f'episodes = 3\n[tasks]\n"{FIRM}" = "0000"\n')
    (folder / "file").write_text("not a folder")
    (folder / "unknown-field.toml").write_text("gruops = 3\n")
    (folder / "wrong-type.toml").write_text('groups = "three"\n')
    (folder / "broken.toml").write_text("groups = \n")
    (folder / "broken.jinja").write_text("{% for %}")
    shutil.copytree(tiny_model, folder / "no-template", ignore=shutil.ignore_patterns("chat_template.jinja"))
    wide = AutoModelForCausalLM.from_pretrained(tiny_model)
    wide.config.hidden_size, wide.config.intermediate_size = 64, 128
    other = type(wide)(wide.config)
    get_peft_model(other, LoraConfig(r=4, target_modules="all-linear")).save_pretrained(folder / "adapter-of-another-base")
    shutil.copytree(tiny_model, folder / "nan-everywhere")
    weights = load_file(folder / "nan-everywhere" / "model.safetensors")
    for weight in weights.values():
        weight.view(-1)[0] = float("nan")
    save_file(weights, folder / "nan-everywhere" / "model.safetensors", {"format": "pt"})
    return folder
