"""The configuration of a run: from flags, file, preset and defaults, to a file and back."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.cli import parse
from msgrpo_hub.cli.training import train_config
from msgrpo_hub.games import GAMES
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import CHOICES, load_config, preset, to_toml
from tests.command import Command
from tests.files import sha256


def some(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    """Values that the field accepts."""
    if get_origin(hint) is Union:
        return st.one_of(*(some(field, part) for part in get_args(hint)))
    if field.name == "game":
        return st.sampled_from(list(GAMES))
    if field.name in CHOICES:
        return st.sampled_from(list(CHOICES[field.name]))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if field.name == "chat_template_kwargs":
        values = st.one_of(text, st.booleans(), st.integers(-(10**15), 10**15), st.floats(-1e15, 1e15))
        return st.dictionaries(
            st.from_regex(r"[a-z]\w{0,9}", fullmatch=True, alphabet=st.characters(codec="ascii")), values, max_size=3
        )
    if get_origin(hint) is Annotated:
        kind, limits = get_args(hint)
        least, most = limits.least, 50 if field.name == "selected_per_group" else limits.most
        if kind is float:
            return st.floats(least, most, exclude_min=limits.open)
        least = {"group_size": 50, "eval_episodes": 50, "eval_every": 1}.get(field.name, least)  # so that they fit each other
        return st.integers(least, most)
    return {bool: st.booleans(), str: text}[hint]


HINTS = get_type_hints(TrainConfig, include_extras=True)
FIELDS = {field.name: some(field, HINTS[field.name]) for field in dataclasses.fields(TrainConfig)}
ALONE = {**FIELDS, "teacher": st.just("none"), "taught": st.just(0), "teacher_thoughts": st.just(False)}
LAKE = st.just("FrozenLake-NotSlippery-v1")
TEACHER = {"teacher": st.sampled_from(["optimal", "greedy"]), "taught": st.just(1), "game": LAKE, "save_rollouts": st.just(False)}
THINKS = {"prompt_format": st.just("think-action"), "teacher_thoughts": st.just(True)}
CONFIGS = st.one_of(
    st.builds(TrainConfig, **ALONE),
    st.builds(TrainConfig, **(FIELDS | TEACHER | {"teacher_thoughts": st.just(False)})),
    st.builds(TrainConfig, **(FIELDS | TEACHER | THINKS)),
)


@given(config=CONFIGS)
def test_a_configuration_comes_back_from_its_toml(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(to_toml(config))
    assert load_config(path) == config


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


def test_the_help_of_train_shows_every_field_with_its_documentation_and_default(msgrpo: Command) -> None:
    ended = msgrpo("train", "--help")
    assert ended.code == 0
    documented = re.findall(r'\n    (\w+): .*\n    """(.*)"""', inspect.getsource(TrainConfig))
    assert [name for name, _ in documented] == [field.name for field in dataclasses.fields(TrainConfig)]
    shown = "".join(ended.out.split())
    defaults = dataclasses.asdict(TrainConfig())
    for name, text in documented:
        assert f"--{name.replace('_', '-')}" in shown
        default = defaults[name]
        choices = f" One of {', '.join(CHOICES[name])}, or module:object." if name in CHOICES else ""
        assert "".join(f"{text}{choices} Default: {'none' if default in ('', {}) else default}.".split()) in shown, name
