"""Several processes: they meet within a minute or say so, they agree on what they refuse, and a wrong launch is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.machine import make_accelerator
from tests.training.conftest import TWO
from tests.training.interrupted import metrics, updates_safe

if TYPE_CHECKING:
    from tests.command import Command

ALONE = """
import os, sys
from datetime import timedelta
from msgrpo_hub.cli import main
from msgrpo_hub.training import machine
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv.pop(), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), sys.argv.pop())
machine.TO_MEET = timedelta(seconds=3)
main(sys.argv[1:])
"""
"""One of two processes, whose other never appears, and which waits for three seconds instead of a minute."""

APART = TWO.replace(
    "main(sys.argv[1:])", "os.makedirs('other', exist_ok=True)\nif not second: os.chdir('other')\nmain(sys.argv[1:])"
)
"""Two processes that do not see the same files under the same name, as nodes without a common disk."""


DYING = """
import itertools, os, signal, sys, time
from msgrpo_hub.cli import main
from msgrpo_hub.training.trainer import Trainer

def act(self, starts, act=Trainer.act, updates=itertools.count(1)):
    if next(updates) == 3 and os.environ["RANK"] == "1":
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return act(self, starts)

Trainer.act = act
main(sys.argv[1:])
"""
"""A process of torchrun, of which the second is killed in its third update."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def test_a_launcher_that_started_one_process_instead_of_several_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(UserError, match=r"several processes and has started one: expected torchrun --nproc-per-node 2"):
        make_accelerator("cpu", "none", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_whose_peer_never_appears_ends_with_one_line(
    rank: int, msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    ended = msgrpo("train", *flags, "--output-dir", tmp_path / "run", rank, free_port(), program=ALONE)
    assert ended.code == 2, ended.err
    assert time.monotonic() - began < 300  # and not half an hour, which is what torch would wait
    assert f"error: process {rank} did not meet the others of 2 within 3 s" in ended.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_torchrun_ends_all_processes_within_a_minute_of_the_death_of_one(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", "dying.py"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    arguments = ["train", *flags, "--device", "cpu", "--output-dir", "run"]
    done = subprocess.run(
        [*program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert time.time() - (tmp_path / "died").stat().st_mtime < 60, done.stderr
    assert len(metrics(tmp_path / "run")) == 2, "what was learned until then is kept"


@pytest.mark.slow
def test_nodes_that_share_no_disk_are_refused_by_one_line(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    ended = msgrpo("train", *flags, "--output-dir", "run", program=APART, folder=tmp_path)
    assert ended.code == 2
    assert [line for line in ended.said if line.startswith("error: ")] == [
        "error: the processes do not see the same files in 'run': expected a shared disk"
    ]
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_another_number_of_processes_goes_on_once_it_is_accepted_and_is_recorded(
    msgrpo: Command, run: Path, flags: list[str]
) -> None:
    before = updates_safe(run)
    refused = msgrpo("train", *flags, "--resume", "--output-dir", run, program=TWO)
    assert refused.code == 2
    said = [line for line in refused.said if line.startswith("error: ")]
    assert len(said) == 1  # the second process leaves the words to the first
    assert "the run began with processes = 1 and would go on with 2" in said[0]
    assert "Traceback" not in refused.err
    assert updates_safe(run) == before
    accepted = msgrpo("train", *flags, "--resume", "--accept-rounding", "--output-dir", run, program=TWO)
    assert accepted.code == 0, accepted.err
    summary = json.loads((run / "summary.json").read_text())
    assert summary["resumed_otherwise"][0]["processes"] == [1, 2]
    assert summary["processes"] == 2
    assert [line["update"] for line in metrics(run)] == [1, 2, 3, 4, 5, 6]
