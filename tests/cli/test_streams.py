"""Where the words of a command go: a terminal that knows only ASCII, a full disk, a reader that has seen enough."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.suites import write_suite

pytestmark = pytest.mark.slow

LAKE = "FrozenLake-NotSlippery-v1"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def commands(folder: Path) -> list[list[str]]:
    suite = write_suite(folder / "suite.toml", 30, LAKE)
    out = str(folder / "out")
    return [
        ["games"],
        ["play", LAKE],
        ["eval", "random", "optimal", "--suite", str(suite), "--output-dir", out],
        ["compare", f"{out}/random", f"{out}/optimal"],
        ["verify", out],
        ["report", out],
    ]


def run(arguments: list[str], stdout: int | object = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "msgrpo_hub", *arguments],
        stdout=stdout,  # type: ignore[arg-type]
        stderr=subprocess.PIPE,
        env=os.environ | variables,
        check=False,
    )


def test_a_terminal_that_knows_only_ascii_gets_every_table(tmp_path: Path) -> None:
    for arguments in commands(tmp_path):
        ended = run(arguments, **ASCII)
        assert ended.returncode == 0, (arguments, ended.stderr.decode())
        assert ended.stdout.isascii()
        assert ended.stdout.strip()
    assert "95 %" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_output_on_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    for arguments in commands(tmp_path):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            ended = run(arguments, stdout=full)
        said = [line for line in ended.stderr.decode().splitlines() if line.startswith(("error", "Traceback", "Exception"))]
        assert (ended.returncode, said) == (
            2,
            ["error: cannot write to the standard output (No space left on device): expected room, or a terminal"],
        ), arguments


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run(["games"], stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (2, b"")


@pytest.mark.parametrize("room", ["msgrpo_hub", "space_app"])
def test_files_are_text_in_utf_8_whatever_the_locale(room: str) -> None:
    for path in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr in ("write_text", "read_text"):
                assert "encoding" in {keyword.arg for keyword in node.keywords}, f"{path}:{node.lineno}"
