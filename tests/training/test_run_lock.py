"""Two trainings never write into one folder."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.run_lock import HOLDER, STALE_AFTER, locked
from tests.training.interrupted import resumed

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow


def test_a_second_training_is_refused_and_names_the_first(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        second = msgrpo("train", *flags, "--output-dir", tmp_path / "run")
    assert second.code == 2
    assert f"is in use by process {os.getpid()} on " in second.said[-1]
    assert not (tmp_path / "run" / "config.toml").exists()


def test_the_lock_of_a_killed_process_is_stale_at_once(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed = msgrpo("train", *flags, "--output-dir", run, die_at=("Trainer.act", "call", 2))
    assert killed.code == -signal.SIGKILL
    assert (run / HOLDER).exists()
    assert resumed(msgrpo, run).code == 0
    assert not (run / HOLDER).exists()


def test_a_process_on_another_machine_is_heeded_while_it_shows_signs_of_life(tmp_path: Path) -> None:
    """Its lock cannot be seen on every shared disk; its file can."""
    holder = tmp_path / HOLDER
    holder.write_text(json.dumps({"host": "another-machine", "process": 7, "since": "2026-01-01T00:00:00+00:00"}))
    said = r"in use by process 7 on another-machine, since 2026-01-01.*delete \.lock\.json there"
    with pytest.raises(UserError, match=said), locked(tmp_path):
        pass
    silent = time.time() - STALE_AFTER - 1
    os.utime(holder, (silent, silent))
    with locked(tmp_path):
        assert json.loads(holder.read_text())["process"] == os.getpid()


def test_a_torn_file_of_a_holder_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / HOLDER).write_text('{"host": "another-ma')
    with locked(tmp_path):
        pass
