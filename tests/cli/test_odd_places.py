"""Folders and streams as people have them: names with a colon or a dollar, closed streams, files in the place of folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.cli.training import next_commands
from msgrpo_hub.storage.shards import write_table
from msgrpo_hub.training.config import TrainConfig


def test_a_table_is_written_in_a_folder_that_looks_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("lake:1")
    folder.mkdir()
    write_table(pa.table({"a": [1]}), folder / "t.parquet")
    assert (tmp_path / "lake:1" / "t.parquet").stat().st_size > 0


def test_an_evaluation_runs_in_a_folder_that_looks_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["eval", "random", "--suite", "quick", "--output-dir", "lake:1"])
    main(["verify", "lake:1"])


def test_the_next_commands_quote_folders() -> None:
    told = next_commands({"game": "FrozenLake-NotSlippery-v1"}, TrainConfig(), Path("my run"))
    assert "--player 'my run/adapter'" in told[0]
    assert "--output-dir 'my run-1'" in told[1]


def test_the_next_commands_type_what_a_file_may_not_import() -> None:
    own = TrainConfig(credit="mine:Credit", prompt_format="mine:Format")
    play, train = next_commands({"game": "FrozenLake-NotSlippery-v1"}, own, Path("run"))
    assert play.endswith(" --prompt-format mine:Format")
    assert "config.toml --credit mine:Credit --prompt-format mine:Format --seed 1 " in train


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m msgrpo_hub {command}"
    return subprocess.run(["sh", "-c", program], cwd=folder, capture_output=True, text=True, check=False, env=os.environ)


def test_closed_streams_are_no_tracebacks(tmp_path: Path) -> None:
    assert run("games >&-", tmp_path).returncode == 0
    told = run("games --json 2>&-", tmp_path)
    assert told.stdout.startswith("{") or told.stdout.startswith("[")
    assert "Next" not in told.stdout


def test_a_file_in_the_place_of_a_folder_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    told = run("push space me/x --dry-run afile/x", tmp_path)
    assert told.returncode == 2
    assert "Not a directory" in told.stderr
    assert "Traceback" not in told.stderr


def test_after_two_dashes_everything_is_a_player(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", "--output-dir", str(tmp_path / "a b"), "--", "silent"])
    assert f"Next: msgrpo report '{tmp_path}/a b'" in capsys.readouterr().err
