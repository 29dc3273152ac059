"""A run whose files are damaged is refused in one line that names the file; nothing is finished from half of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.training import train
from msgrpo_hub.training.config import stored_config

pytestmark = pytest.mark.slow


def cut_line(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[3:]]))


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an empty summary": ("summary.json", lambda path: path.write_text("{}")),
    "half a summary": ("summary.json", lambda path: path.write_text(path.read_text()[:99])),
    "a summary that is a list": ("summary.json", lambda path: path.write_text("[]")),
    "metrics without a line": ("metrics.jsonl", cut_line),
    "metrics of other words": ("metrics.jsonl", lambda path: path.write_text("garbage\n" * 6)),
    "no metrics": ("metrics.jsonl", lambda path: path.unlink()),
    "an empty provenance": ("provenance.json", lambda path: path.write_text("{}")),
    "half a provenance": ("provenance.json", lambda path: path.write_text("{")),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_of_a_run_is_named_and_nothing_is_finished(
    name: str, damage: Callable[[Path], object], finished_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    if name != "summary.json":
        (run / "summary.json").unlink()
    damage(run / name)
    with pytest.raises(UserError, match=name):
        train(stored_config(run / "config.toml"), run, resume=True, show_progress=False)
    assert (run / "summary.json").exists() == (name == "summary.json")
