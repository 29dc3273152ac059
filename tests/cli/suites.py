"""Short suites, and the `msgrpo` command in this process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.evaluation.suites import hash_of

FIRM, SLIPPERY, SNAKE = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Short-v1"


def write_suite(file: Path, episodes: int, *tasks: str) -> Path:
    lines = [f'"{task}" = "{hash_of(task)}"' for task in tasks]
    file.write_text(f'episodes = {episodes}\nsplit = "validation"\n[tasks]\n' + "\n".join(lines) + "\n")
    return file


@dataclass(frozen=True)
class Ended:
    """The exit status and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """Standard error without the progress bars."""
        return [line for line in re.split(r"[\r\n]+", self.err) if line.strip() and "episode/s" not in line]


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The `msgrpo` command in this process."""

    def command(*arguments: object) -> Ended:
        code = 0
        capsys.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return command
