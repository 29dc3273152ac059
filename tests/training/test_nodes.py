"""Two machines under torchrun, and a base that FSDP shards over two processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from msgrpo_hub.training.summary import read_metrics
from tests.models.vllm_loopback import VllmLoopback
from tests.training.runs import WEIGHTS, summary_of, updates_safe

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow
LAUNCH = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
TEN = ["train", "--preset", "quickstart", "--updates", "10", "--eval-every", "0", "--test-episodes", "4", "--device", "cpu"]
NODE = """
import os, socket, sys
socket.gethostname = lambda: os.path.basename(os.environ["HOME"])
from msgrpo_hub.cli import main
main(sys.argv[1:])
"""
"""The command on a machine with a name of its own."""


def adapter(run: Path) -> dict[str, Tensor]:
    return load_file(run / "adapter" / WEIGHTS)


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Of all weights, relative to their norm."""
    ours, theirs = (torch.cat([weights[name].flatten() for name in sorted(weights)]) for weights in (a, b))
    return float((ours - theirs).norm() / theirs.norm())


class Nodes:
    """Two agents of torchrun, each with a home of its own."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            meeting = f"--rdzv-endpoint=127.0.0.1:{free.getsockname()[1]}"
        launch = [*LAUNCH, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--local-addr=127.0.0.1", meeting]
        self.homes = [folder / "first", folder / "second"]
        self.agents = []
        for home in self.homes:
            home.mkdir(exist_ok=True)
            (home / "node.py").write_text(NODE)
            with (home / "said.txt").open("w") as said:
                more = {"cwd": home, "env": ENVIRONMENT | {"HOME": str(home)}, "start_new_session": True}
                command = [*launch, "node.py", *map(str, arguments)]
                self.agents.append(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, **more))  # type: ignore[call-overload]

    def codes(self) -> list[int]:
        return [agent.wait(timeout=300) for agent in self.agents]

    def said(self) -> list[str]:
        return [line for home in self.homes for line in (home / "said.txt").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(msgrpo: Command, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The adapter of ten updates of the quickstart by one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert msgrpo(*TEN, "--output-dir", run).code == 0
    return adapter(run)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_node_ends_the_other_within_seconds_and_both_resume(
    killed: int, alone: dict[str, Tensor], tmp_path: Path
) -> None:
    command = [*TEN, "--resume", "--output-dir", tmp_path / "run"]
    nodes = Nodes(tmp_path, *command)
    while updates_safe(tmp_path / "run") < 3:
        time.sleep(0.05)
    agent = psutil.Process(nodes.agents[killed].pid)
    for process in [agent, *agent.children(recursive=True)]:
        process.kill()
    began = time.monotonic()
    assert nodes.agents[1 - killed].wait(timeout=60) != 0
    assert time.monotonic() - began < 30
    assert updates_safe(tmp_path / "run") < 10
    assert Nodes(tmp_path, *command).codes() == [0, 0]
    assert distance(adapter(tmp_path / "run"), alone) < 1e-6


def test_nodes_without_a_common_disk_are_refused_by_one_line(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, *TEN, "--output-dir", "run")
    assert all(nodes.codes())
    assert [line for line in nodes.said() if line.startswith("error: ")] == [
        "error: the processes do not see the same files in 'run': expected a shared disk"
    ]


DYING = """
import itertools, os, signal, sys, time
from msgrpo_hub.cli import main
from msgrpo_hub.training.trainer import Trainer

def act(self, starts, teacher, act=Trainer.act, updates=itertools.count(1)):
    if next(updates) == 3 and os.environ["RANK"] == "1":
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return act(self, starts, teacher)

Trainer.act = act
main(sys.argv[1:])
"""
"""The second process is killed in its third update."""

SHARDED = ENVIRONMENT | {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
UNTESTED = ["--eval-every", "0", "--test-episodes", "0", "--device", "cpu"]
CONFIGURATION = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 2\nuse_cpu: true\n"


def fsdp(*arguments: object, launch: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Two processes that share a base."""
    how = {"cwd": folder, "env": SHARDED | environment, "capture_output": True, "text": True, "timeout": 300, "check": False}
    done: subprocess.CompletedProcess[str] = subprocess.run([*launch, *map(str, arguments)], **how)  # type: ignore[call-overload]
    return done


TORCHRUN = [*LAUNCH, "--standalone", "--nproc-per-node=2"]


def test_a_sharded_base_gives_the_adapter_of_a_whole_one_and_resumes(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    (tmp_path / "fsdp.yaml").write_text(CONFIGURATION)
    taught = ["train", *flags, *UNTESTED, "--teacher", "optimal", "--taught", "6", "--groups", "5", "--max-new-tokens", "12"]
    assert msgrpo(*taught, "--engine", "plain", "--output-dir", tmp_path / "whole").code == 0
    died = fsdp(*taught, "--output-dir", "run", launch=[*TORCHRUN, "dying.py"], folder=tmp_path)
    assert (died.returncode != 0, updates_safe(tmp_path / "run")) == (True, 2), died.stderr
    accelerate = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "fsdp.yaml", "-m", "msgrpo_hub"]
    done = fsdp(*taught, "--resume", "--output-dir", "run", launch=accelerate, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert distance(adapter(tmp_path / "run"), adapter(tmp_path / "whole")) < 1e-6
    assert summary_of(tmp_path / "run")["engine"] == "fsdp"


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_sharded_base_learns_from_rewards_of_episodes_that_servers_play(
    staleness: int, tiny_model: Path, flags: list[str], tmp_path: Path
) -> None:
    with VllmLoopback(str(tiny_model)) as server:
        arguments = ["train", *flags, *UNTESTED, "--updates", "3", "--acting", f"vllm:{server.url}", "--output-dir", "run"]
        done = fsdp(*arguments, "--staleness", staleness, launch=[*TORCHRUN, "-m", "msgrpo_hub"], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert len(lines) == 3
    assert max(abs(line["sampler_k3"]) for line in lines) < 1e-6, "trainer and server compute the same after every step"
    assert all(line["gradient_norm"] > 0 for line in lines)


@pytest.mark.parametrize(
    ("launch", "environment", "more", "said"),
    [
        ([sys.executable], {"FSDP_VERSION": "1"}, UNTESTED, "FSDP of version 1 cannot be used: expected fsdp_version: 2"),
        ([sys.executable], {}, UNTESTED, "FSDP shards a base over processes: expected `accelerate launch`, or torchrun"),
        (TORCHRUN, {}, UNTESTED, "FSDP with acting = 'engine': expected vllm:URL, or --taught for all updates"),
        (
            TORCHRUN,
            {},
            ["--taught", "6", "--teacher", "optimal", "--device", "cpu"],
            "FSDP with an evaluation: expected --eval-every 0",
        ),
        (TORCHRUN, {}, [*UNTESTED, "--load-in-4bit"], "FSDP with load_in_4bit = True: expected False"),
    ],
)
def test_what_fsdp_cannot_do_is_refused_by_one_line(
    launch: list[str], environment: dict[str, str], more: list[str], said: str, flags: list[str], tmp_path: Path
) -> None:
    done = fsdp(
        "train", *flags, *more, "--output-dir", "run", launch=[*launch, "-m", "msgrpo_hub"], folder=tmp_path, **environment
    )
    assert done.returncode != 0
    assert [line.startswith(f"error: {said}") for line in done.stderr.splitlines() if line.startswith("error: ")] == [True]
