"""A disk that is full or read-only: every command says so in one line, and works once there is room."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.suites import write_suite
from tests.files import hashes, once

if TYPE_CHECKING:
    from tests.command import Command, Finished

LAKE = "FrozenLake-NotSlippery-v1"
PAGE = 4096


@pytest.fixture(scope="session")
def played(msgrpo: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evaluation in `runs`, and its suite. Not to be changed: copy it."""

    def play(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        write_suite(folder / "suite.toml", 30, LAKE)
        assert evaluated(msgrpo, folder, folder / "runs").code == 0

    return once(tmp_path_factory, "played-to-a-disk", play)


def evaluated(msgrpo: Command, played: Path, runs: Path, **given: int) -> Finished:
    return msgrpo("eval", "random", "--suite", played / "suite.toml", "--output-dir", runs, **given)


def fill(disk: Path, pages: int) -> Path:
    """Leaves so many pages of 4 KiB free."""
    (disk / "filler").write_bytes(b"." * (shutil.disk_usage(disk).free - pages * PAGE))
    return disk / "filler"


def assert_one_line(ended: Finished, *parts: str) -> None:
    errors = [line for line in ended.said if not re.match("pushing|replaying|.*episode/s", line)]
    assert (ended.code, len(errors)) == (2, 1), ended.err
    for part in ("error: cannot", *parts):
        assert part in errors[0]


def same_but_times(runs: Path, played: Path) -> bool:
    first, second = ({name: own for name, own in hashes(folder).items() if "timing" not in name} for folder in (runs, played))
    return first == second


@pytest.mark.parametrize("pages", [0, 1, 8])
def test_an_evaluation_keeps_its_finished_episodes_and_ends_equal(msgrpo: Command, played: Path, disk: Path, pages: int) -> None:
    """The configuration, the log, or one of the final files does not fit."""
    filler = fill(disk, pages)
    ended = evaluated(msgrpo, played, disk / "runs")
    logged = sum(len(log.read_text().splitlines(keepends=True)) for log in disk.rglob("episodes.jsonl"))
    assert_one_line(ended, "(No space left on device): ", " finished episodes are safe there; make room, then run the same")
    safe = int(ended.said[-1].split("): ")[1].split()[0])
    assert logged - 1 <= safe <= logged
    filler.unlink()
    assert evaluated(msgrpo, played, disk / "runs").code == 0
    assert same_but_times(disk / "runs", played / "runs")


Arguments = Callable[[Path, Path], list[object]]

WRITING: dict[str, tuple[Arguments, str]] = {
    "report": (lambda runs, out: ["report", runs, "--output", out / "page.html"], "the runs are as they were"),
    "push rollouts": (
        lambda runs, out: ["push", "rollouts", runs, "ada/x", "--dry-run", out / "staged"],
        "nothing was left there",
    ),
    "push base": (lambda _, out: ["push", "base", "ada/x", "--dry-run", out / "staged"], "nothing was left there"),
}
"""Command → its arguments, and what it says is safe."""


@pytest.mark.parametrize("command", ["report", "push rollouts"])
@pytest.mark.parametrize("pages", [0, 5])
def test_a_command_on_a_full_disk_leaves_nothing_and_works_once_there_is_room(
    msgrpo: Command, played: Path, disk: Path, command: str, pages: int
) -> None:
    arguments, safe = WRITING[command]
    filler = fill(disk, pages)
    assert_one_line(msgrpo(*arguments(played / "runs", disk)), f"(No space left on device): {safe}; make room, then run the same")
    assert [path.name for path in disk.iterdir()] == ["filler"]
    filler.unlink()
    assert msgrpo(*arguments(played / "runs", disk)).code == 0
    assert len([*disk.iterdir()]) == 1


@pytest.mark.parametrize("command", WRITING)
def test_a_file_that_may_not_grow_is_said_in_one_line_by_every_command(
    msgrpo: Command, played: Path, tmp_path: Path, command: str
) -> None:
    """The same where no file system can be mounted."""
    arguments, safe = WRITING[command]
    said = msgrpo(*arguments(played / "runs", tmp_path), largest_file=2_000)
    assert_one_line(said, f"(File too large): {safe}; make room, then run the same")
    assert [*tmp_path.iterdir()] == []
    assert msgrpo(*arguments(played / "runs", tmp_path)).code == 0


def test_an_evaluation_and_an_episode_whose_file_may_not_grow_are_said_in_one_line(
    msgrpo: Command, played: Path, tmp_path: Path
) -> None:
    assert_one_line(evaluated(msgrpo, played, tmp_path, largest_file=2_000), "(File too large)", "episodes are safe there")
    assert evaluated(msgrpo, played, tmp_path).code == 0
    episode = msgrpo("play", LAKE, "--json", largest_file=100)
    assert_one_line(episode, "cannot write to the standard output (File too large)")


def test_a_read_only_disk_can_be_read_and_what_writes_says_so(msgrpo: Command, played: Path, disk: Path) -> None:
    runs = Path(shutil.copytree(played / "runs", disk / "runs"))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert evaluated(msgrpo, played, runs).code == 0
    for command in ("verify", "leaderboard"):
        assert msgrpo(command, runs).code == 0
    assert_one_line(msgrpo("report", runs), f"'{runs}' (Read-only file system): the runs are as they were; allow writing there")
    staged = msgrpo("push", "rollouts", runs, "ada/x", "--dry-run", disk / "staged")
    assert_one_line(staged, f"'{disk / 'staged'}' (Read-only file system): nothing was left there; allow writing there")
    assert_one_line(msgrpo("eval", "greedy", "--suite", played / "suite.toml", "--output-dir", runs), "(Read-only file system)")


def test_full_temporary_files_are_said_in_one_line(msgrpo: Command, disk: Path) -> None:
    """A push stages its files there."""
    fill(disk, 0)
    program = (
        f"import os, sys, tempfile; tempfile.tempdir = {str(disk)!r}; os.environ['HF_TOKEN'] = 'hf_none'\n"
        "from msgrpo_hub.cli import main\nmain(sys.argv[1:])"
    )
    assert_one_line(msgrpo("push", "space", "ada/x", program=program), "(No space left on device): make room")


def test_what_a_kill_left_of_a_dry_run_is_no_obstacle(msgrpo: Command, played: Path, tmp_path: Path) -> None:
    (tmp_path / "staged" / ".new").mkdir(parents=True)
    (tmp_path / "staged" / ".new" / "half").write_text("written")
    arguments, _ = WRITING["push rollouts"]
    assert msgrpo(*arguments(played / "runs", tmp_path)).code == 0
    assert "half" not in {path.name for path in tmp_path.rglob("*")}
    assert "is not empty" in msgrpo(*arguments(played / "runs", tmp_path)).said[-1]
