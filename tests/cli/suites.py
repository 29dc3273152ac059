"""Short suites, and the `msgrpo` command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.evaluation.suites import hash_of
from tests.command import Finished

FIRM, SLIPPERY, SNAKE = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Short-v1"


def write_suite(file: Path, episodes: int, *tasks: str) -> Path:
    lines = [f'"{task}" = "{hash_of(task)}"' for task in tasks]
    file.write_text(f'episodes = {episodes}\nsplit = "validation"\n[tasks]\n' + "\n".join(lines) + "\n")
    return file


Run = Callable[..., Finished]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The `msgrpo` command in this process."""

    def command(*arguments: object) -> Finished:
        code = 0
        capsys.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Finished(code, out, err)

    return command
