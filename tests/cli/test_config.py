"""The configuration of a run: from flags, file, preset and defaults, to a file and back."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from msgrpo_hub.cli import parse
from msgrpo_hub.cli.training import train_config
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import resolve
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import PRESETS, load_config, preset, to_toml
from tests.command import Command
from tests.files import sha256

ODD = TrainConfig(
    game="Snake-Solo-v1=2,FrozenLake-NotSlippery-v1",
    init_adapter='a "quoted" folder\n\u2028 \\ ü',
    chat_template_kwargs={"enable_thinking": False, "budget": -3, "share": 1e-15, "text": "it's"},
    learning_rate=1e-7,
    seed=2**64 - 1,
)


@pytest.mark.parametrize("config", [ODD, *map(preset, PRESETS)])
def test_a_configuration_comes_back_from_its_toml(config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"\ufeff{to_toml(config)}", encoding="utf-8")  # an editor's byte order mark
    assert load_config(tmp_path / "config.toml") == config


def test_flags_win_over_the_file_the_preset_and_the_defaults(tmp_path: Path) -> None:
    def config(*given: str) -> TrainConfig:
        return train_config(parse(["train", "--output-dir", str(tmp_path), *given]))  # type: ignore[no-any-return]

    (tmp_path / "some.toml").write_text("groups = 3\nbeta = 1\n")
    assert config() == TrainConfig()
    assert config("--preset", "quickstart-snake") == preset("quickstart-snake")
    assert config("--preset", "quickstart", "--beta", "0.5") == dataclasses.replace(preset("quickstart"), beta=0.5)
    assert config("--config", str(tmp_path / "some.toml"), "--groups", "5") == TrainConfig(groups=5, beta=1.0)
    assert config("--chat-template-kwargs", '{"enable_thinking": false}').chat_template_kwargs == {"enable_thinking": False}
    assert config("--gradient-checkpointing", "--no-save-rollouts") == TrainConfig(gradient_checkpointing=True)
    assert config("--temperature", "1.5", "--beta", "0.5") == TrainConfig(temperature=1.5, beta=0.5)
    assert config("--temperature", "1.25") == TrainConfig(temperature=1.25)


def test_the_resolved_configuration_runs_again_and_gives_the_same_adapter(
    msgrpo: Command, finished_run: Path, tmp_path: Path
) -> None:
    assert msgrpo("train", "--config", finished_run / "config.toml", "--output-dir", tmp_path / "again").code == 0
    for name in ("config.toml", "adapter/adapter_model.safetensors", "replay.svg"):
        assert sha256(tmp_path / "again" / name) == sha256(finished_run / name), name


def test_the_help_of_train_shows_every_field(msgrpo: Command) -> None:
    shown = msgrpo("train", "--help").out
    assert [field.name for field in dataclasses.fields(TrainConfig) if f"--{field.name.replace('_', '-')}" not in shown] == []


def test_a_module_of_the_current_folder_is_imported_and_a_class_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_choice.py").write_text("class Three:\n    value = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert resolve("number", "own_choice:Three", {}, may_import=True).value == 3  # type: ignore[attr-defined]


def test_a_name_that_was_read_and_not_typed_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_choice.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="would import code"):
        resolve("credit", "evil_choice:credit", {"whole-episode": 1})
    assert "evil_choice" not in sys.modules
