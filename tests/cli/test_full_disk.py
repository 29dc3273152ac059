"""A disk that is full or read-only: every command says so in one line, and works once there is room."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.suites import write_suite
from tests.files import hashes, once

if TYPE_CHECKING:
    from tests.command import Command, Finished

LAKE = "FrozenLake-NotSlippery-v1"
WRITING = {
    "report RUNS --output OUT/page.html": "the runs are as they were",
    "push rollouts RUNS ada/x --dry-run OUT/staged": "nothing was left there",
    "push base ada/x --dry-run OUT/staged": "nothing was left there",
}
"""Command → the state that its error message reports."""


@pytest.fixture(scope="session")
def played(msgrpo: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evaluation in `runs`, and its suite. Copy them before a change."""

    def play(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        write_suite(folder / "suite.toml", 30, LAKE)
        assert evaluated(msgrpo, folder, folder / "runs").code == 0

    return once(tmp_path_factory, "played-to-a-disk", play)


def evaluated(msgrpo: Command, played: Path, runs: Path, **given: int) -> Finished:
    return msgrpo("eval", "random", "--suite", played / "suite.toml", "--output-dir", runs, **given)


def write(msgrpo: Command, command: str, played: Path, out: Path, **given: int) -> Finished:
    return msgrpo(*command.replace("RUNS", str(played / "runs")).replace("OUT", str(out)).split(), **given)


def fill(disk: Path, pages: int) -> Path:
    """Leaves this many pages of 4 KiB free."""
    (disk / "filler").write_bytes(b"." * (shutil.disk_usage(disk).free - pages * 4096))
    return disk / "filler"


def assert_one_line(ended: Finished, *parts: str) -> None:
    errors = [line for line in ended.said if not line.startswith(("pushing", "replaying"))]
    assert (ended.code, len(errors)) == (2, 1), ended.err
    for part in ("error: cannot", *parts):
        assert part in errors[0]


@pytest.mark.parametrize("pages", [0, 8])  # no room for the configuration, or for a final file
def test_an_evaluation_keeps_its_finished_episodes_and_ends_equal(msgrpo: Command, played: Path, disk: Path, pages: int) -> None:
    filler = fill(disk, pages)
    ended = evaluated(msgrpo, played, disk / "runs")
    logged = sum(len(log.read_text().splitlines(keepends=True)) for log in disk.rglob("episodes.jsonl"))
    assert_one_line(ended, "(No space left on device): ", " finished episodes are safe there; make room, then run the same")
    assert logged - 1 <= int(ended.said[-1].split("): ")[1].split()[0]) <= logged
    filler.unlink()
    assert evaluated(msgrpo, played, disk / "runs").code == 0
    assert hashes(disk / "runs") == hashes(played / "runs")


@pytest.mark.parametrize("command", WRITING)
def test_a_file_that_may_not_grow_is_one_line(msgrpo: Command, played: Path, tmp_path: Path, command: str) -> None:
    ended = write(msgrpo, command, played, tmp_path, largest_file=2_000)
    assert_one_line(ended, f"(File too large): {WRITING[command]}; make room, then run the same")
    assert [*tmp_path.iterdir()] == []
    assert write(msgrpo, command, played, tmp_path).code == 0
    if "--dry-run" in command:
        assert "is not empty" in write(msgrpo, command, played, tmp_path).said[-1]


def test_a_read_only_disk_can_be_read_and_every_write_is_one_line(msgrpo: Command, played: Path, disk: Path) -> None:
    runs = Path(shutil.copytree(played / "runs", disk / "runs"))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert evaluated(msgrpo, played, runs).code == 0
    for command in ("verify", "leaderboard"):
        assert msgrpo(command, runs).code == 0
    assert_one_line(msgrpo("report", runs), f"'{runs}' (Read-only file system): the runs are as they were; allow writing there")
    staged = msgrpo("push", "rollouts", runs, "ada/x", "--dry-run", disk / "staged")
    assert_one_line(staged, f"'{disk / 'staged'}' (Read-only file system): nothing was left there; allow writing there")
    assert_one_line(msgrpo("eval", "greedy", "--suite", played / "suite.toml", "--output-dir", runs), "(Read-only file system)")


def test_a_push_that_cannot_write_its_temporary_files_is_one_line(msgrpo: Command, disk: Path) -> None:
    fill(disk, 0)
    program = (
        f"import os, sys, tempfile; tempfile.tempdir = {str(disk)!r}; os.environ['HF_TOKEN'] = 'hf_none'\n"
        "from msgrpo_hub.cli import main\nmain(sys.argv[1:])"
    )
    assert_one_line(msgrpo("push", "space", "ada/x", program=program), "(No space left on device): make room")
