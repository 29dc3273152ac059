"""A full disk, a file that may not grow, or a folder that is gone ends in one readable line; the last checkpoint stays."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.command import Command, Finished
from tests.files import sha256
from tests.training.interrupted import assert_same_run, resumed, updates_safe

pytestmark = pytest.mark.slow

# ---- a full disk


def assert_said_plainly(ended: Finished, folder: Path) -> None:
    """One line, with the number of updates that the checkpoint really holds."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    [line] = ended.said
    assert line.startswith(f"error: cannot write to '{folder}' (")
    assert line.endswith(f"): {updates_safe(folder)} updates are safe there; make room, then continue with --resume")


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


def test_a_run_whose_folder_goes_away_says_that_nothing_is_safe_and_can_start_anew(
    msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = msgrpo.start("train", *flags, "--output-dir", run)
    until = time.monotonic() + 60
    while updates_in(run) < 1 and time.monotonic() < until:
        time.sleep(0.005)
    run.rename(tmp_path / "elsewhere")
    ended = training.wait()
    assert (ended.code, ended.said) == (
        2,
        [f"error: cannot write to '{run}', which is gone: nothing of it is safe; run the same command again"],
    )
    assert not run.exists()
    assert msgrpo("train", *flags, "--output-dir", run).code == 0
    assert_same_run(run, finished_run)


def updates_in(run: Path) -> int:
    """The lines of the metrics, of which each is written before its checkpoint."""
    return len((run / "metrics.jsonl").read_text().splitlines()) if (run / "metrics.jsonl").exists() else 0
