"""Every command of the skill for coding agents runs, in order, against the loopback Hub, and prints JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import msgrpo_hub.cli
from tests.hub.commands import msgrpo, warm
from tests.hub_server.lanes import Loopback

__all__ = ["warm"]

SKILL = Path(msgrpo_hub.cli.__file__).with_name("SKILL.md")
SHORT = (
    "--updates 2 --groups 2 --group-size 8 --selected-per-group 4 --temperature 2 --eval-every 0 --test-episodes 2 --threads 1"
)
"""Added to training commands, so that they end within seconds."""


def lines() -> list[str]:
    fenced = re.findall(r"```bash\n(.*?)```", SKILL.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in fenced for line in block.splitlines()]


def run_line(line: str, folder: str) -> None:
    os.chdir(folder)
    command, _, target = line.partition(" > ")
    arguments = shlex.split(command)[1:]
    if target:
        with Path(target).open("w", encoding="utf-8") as file, redirect_stdout(file):
            msgrpo(*arguments)
    else:
        msgrpo(*arguments)


def test_every_command_of_the_skill_runs_and_prints_json(loopback: Loopback, tmp_path: Path) -> None:
    kinds = {"you/pocket": "model", "you/lake-rollouts": "dataset", "you/lake": "model", "you/board": "dataset"}
    names = {name: loopback.repository(kind) for name, kind in kinds.items()}
    for line in lines():
        command = re.sub(r"you/[\w-]+", lambda match: names[match[0]], line)
        command = command.replace("--seeds 0-2", "--seeds 0-1")
        command += f" {SHORT}" if command.startswith("msgrpo train") else ""
        done = loopback.owner.attempt(run_line, command, str(tmp_path))
        assert done.code == 0, f"{line}\n{done.err}"
        assert "\nNext: " in done.err, line
        if "--json" in line.split():
            assert json.loads(done.out), line
