"""Streams and paths: an ASCII terminal, a full disk, a closed pipe, a folder like a URL, a file in the place of a folder."""

from __future__ import annotations

import ast
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
from tests.cli.suites import write_suite

LAKE = "FrozenLake-NotSlippery-v1"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def commands(folder: Path) -> list[list[str]]:
    suite, out = write_suite(folder / "suite.toml", 30, LAKE), str(folder / "out")
    return [
        ["games"],
        ["play", LAKE],
        ["eval", "random", "optimal", "--suite", str(suite), "--output-dir", out],
        ["compare", f"{out}/random", f"{out}/optimal"],
        ["verify", out],
        ["report", out],
    ]


def run(*arguments: str, stdout: int | object = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command, environment = [sys.executable, "-m", "msgrpo_hub", *arguments], os.environ | variables
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii_gets_every_table(tmp_path: Path) -> None:
    for arguments in commands(tmp_path):
        ended = run(*arguments, **ASCII)
        assert ended.returncode == 0, (arguments, ended.stderr.decode())
        assert ended.stdout.isascii()
        assert ended.stdout.strip()
    assert "95 %" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_output_on_a_full_disk_gives_one_line() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = run("games", stdout=full)
    assert ended.returncode == 2
    assert ended.stderr.decode().splitlines()[-1].startswith("error: cannot write to a file or standard output (No space left")


def test_a_reader_that_closes_the_pipe_ends_a_command_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("games", stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (2, b"")


@pytest.mark.parametrize(("closed", "output"), [("games >&-", ""), ("games --json 2>&-", "[")])
def test_closed_streams_are_no_tracebacks(closed: str, output: str) -> None:
    ended = subprocess.run(["sh", "-c", f"{sys.executable} -m msgrpo_hub {closed}"], capture_output=True, text=True, check=True)
    assert ended.stdout[:1] == output
    assert "Next" not in ended.stdout


def test_an_evaluation_runs_in_a_folder_that_looks_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["eval", "random", "--suite", "quick", "--output-dir", "lake:1"])
    main(["verify", "lake:1"])
    write_table(pa.table({"a": [1]}), Path("lake:1", "t.parquet"))
    assert (tmp_path / "lake:1" / "t.parquet").stat().st_size > 0


def test_the_next_commands_quote_folders_and_type_objects_that_a_file_may_not_import() -> None:
    own = TrainConfig(credit="mine:Credit", prompt_format="mine:Format")
    play, train = next_commands({"game": LAKE}, own, Path("my run"))
    assert "--player 'my run/adapter'" in play
    assert play.endswith(" --prompt-format mine:Format")
    assert "config.toml' --credit mine:Credit --prompt-format mine:Format --seed 1 --output-dir 'my run-1'" in train


def test_after_two_dashes_everything_is_a_player(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", "--output-dir", str(tmp_path / "a b"), "--", "silent"])
    assert f"Next: msgrpo report '{tmp_path}/a b'" in capsys.readouterr().err


@pytest.mark.parametrize("room", ["msgrpo_hub", "space_app"])
def test_every_text_file_is_read_and_written_in_utf_8(room: str) -> None:
    for path in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr in ("write_text", "read_text"):
                assert "encoding" in {keyword.arg for keyword in node.keywords}, f"{path}:{node.lineno}"
