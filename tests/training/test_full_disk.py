"""A full disk, or a file that may not grow, ends in one readable line, and the last checkpoint stays."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.command import Command, Finished
from tests.files import sha256
from tests.training.interrupted import assert_same_run, resumed, updates_safe

# ---- a full disk


def assert_said_plainly(ended: Finished, folder: Path) -> None:
    """One line, with the number of updates that the checkpoint really holds."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    [line] = ended.said
    assert line.startswith(f"error: cannot write to '{folder}' (")
    assert line.endswith(f"): {updates_safe(folder)} updates are safe there; make room, then continue with --resume")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("pages", [0, 5, 8, 40])
def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on_when_there_is_room(
    pages: int, msgrpo: Command, finished_run: Path, stopped: Path, disk: Path
) -> None:
    """`pages` of 4 KiB are free: too few for the metrics, the best adapter, a checkpoint, or the curves."""
    run = Path(shutil.copytree(stopped, disk / "run"))
    before = sha256(run / "checkpoint.safetensors")
    (disk / "filler").write_bytes(b"." * (shutil.disk_usage(disk).free - pages * 4096))
    assert_said_plainly(resumed(msgrpo, run), run)
    assert updates_safe(run) > 2 or sha256(run / "checkpoint.safetensors") == before
    (disk / "filler").unlink()
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, finished_run)


@pytest.mark.parametrize("largest", [300, 30_000, 50_000])
def test_a_file_that_may_not_grow_is_said_plainly(
    largest: int, msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    """The same where no file system can be mounted: the configuration, the checkpoint or the curves do not fit."""
    assert_said_plainly(msgrpo("train", *flags, "--output-dir", tmp_path / "run", largest_file=largest), tmp_path / "run")
    assert msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", finished_run)
