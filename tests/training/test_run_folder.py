"""A run and its folder: what identifies it, and what of the folder is its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.config import fingerprint, stored_config, to_toml
from msgrpo_hub.training.run_folder import RunFolder, locked

LEFT = (
    ".checkpoint.safetensors.new",
    ".acting.new/weights",
    ".adapter.new/file",
    "rollouts/.one.parquet.new",
    ".tmpX1y2Z3",
    "adapter/.file.new",
)
"""What a killed run leaves."""


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_run_takes_away_what_a_killed_run_left_and_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    run, own = (
        RunFolder(tmp_path),
        {".thesis.new", "mine/.tmp_work/data", "mine/.draft.new", ".tmp", ".tmp_notes", "mine/.tmp1a2B3c"},
    )
    make(tmp_path, *own, *LEFT)
    run.claim(to_toml(TrainConfig()))
    assert files(tmp_path) == {*own, *LEFT, "config.toml"}, "the first run of a folder has left nothing there"
    run.claim(to_toml(TrainConfig()))
    assert files(tmp_path) == {*own, "config.toml"}


def test_a_whole_number_is_the_same_run_in_python_as_in_its_file(tmp_path: Path) -> None:
    floats = {name for name, kind in get_type_hints(TrainConfig).items() if float in (kind, *get_args(kind))}
    config = TrainConfig(**dict.fromkeys(floats - {"lora_dropout"}, 1))  # type: ignore[arg-type]
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert {type(getattr(config, name)) for name in floats} == {float}
    assert fingerprint(config) == fingerprint(stored_config(tmp_path / "config.toml"))


def test_a_second_training_is_refused_and_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(UserError, match="is in use by another process: wait until that training ends"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", "{}"),
        ("summary.json", "[]"),
        ("metrics.jsonl", '{"update": 1.0, "seconds_acting": 1.0, "seconds_training": 1.0}\ngarbage\nmore\n'),
        ("metrics.jsonl", None),
        ("provenance.json", "{}"),
        ("provenance.json", "{"),
    ],
)
def test_a_damaged_file_of_a_run_is_named_and_nothing_is_finished(
    name: str, content: str | None, finished_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    if name != "summary.json":
        (run / "summary.json").unlink()
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    with pytest.raises(UserError, match=name):
        train(stored_config(run / "config.toml"), run, resume=True, show_progress=False)
    assert (run / "summary.json").exists() == (name == "summary.json")
