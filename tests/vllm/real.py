"""A real vLLM server as a process, started as the guide says, and a client that a test watches or disturbs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self, cast
from urllib.request import urlopen

import torch
from accelerate import Accelerator

from benchmark.throughput.with_vllm import PYTHON
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.models.vllm_server import Reply, VllmServer
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.acting import VllmActor
from msgrpo_hub.training.trainer import Trainer
from tests.interop.serving import free_port

GUIDE = {
    "--enable-lora": "",
    "--max-lora-rank": "16",
    "--logprobs-mode": "processed_logprobs",
    "--max-model-len": "1024",
}
"""The flags that the guide names."""
MACHINE = {"--dtype": "float32", "--enforce-eager": ""}
"""Further flags for a processor without a compiler."""
UPDATING = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # its imports take a minute otherwise
}


@dataclass
class RealServer:
    """Serves the built-in base inside its `with` block. `stop` and `start` make it a new process at the same address."""

    log: Path
    flags: Mapping[str, str] = field(default_factory=lambda: GUIDE)
    updating: Mapping[str, str] = field(default_factory=lambda: UPDATING)

    def __enter__(self) -> Self:
        self.port = free_port()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        flags = [part for flag in {**self.flags, **MACHINE}.items() for part in flag if part]
        program = [os.environ[PYTHON], "-m", "vllm.entrypoints.openai.api_server", "--model", str(pocket_path())]
        with self.log.open("ab") as output:
            self.process: subprocess.Popen[Any] = subprocess.Popen(
                [*program, "--host", "127.0.0.1", "--port", str(self.port), *flags],
                env={**os.environ, **ENVIRONMENT, **self.updating},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + 900  # seconds; about a minute on an idle machine of two cores
        while not self.answers("/health"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(self.log.read_text()[-5000:])
            time.sleep(0.5)

    def stop(self) -> None:
        """Kills the process and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def freeze(self) -> None:
        """It holds its connections and sends no answer until `thaw`."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def answers(self, path: str) -> str | None:
        """The body of an answer with status 200, a space if it is empty; else None."""
        try:
            with urlopen(f"{self.url}{path}", timeout=5) as response:
                return response.read().decode() or " "
        except (OSError, HTTPException):
            return None

    def finished(self) -> int:
        """The number of finished requests in the server's metrics."""
        lines = [line for line in (self.answers("/metrics") or "").splitlines() if line.startswith("vllm:request_success_total")]
        return round(sum(float(line.rpartition(" ")[2]) for line in lines))

    def adapters(self) -> list[str]:
        """The names of the adapters in the server's list of models."""
        models = VllmServer(url=self.url)._ask("GET", "/v1/models")["data"]
        return [model["id"] for model in models if model["parent"]]


@dataclass(frozen=True, kw_only=True)
class Watched(VllmServer):
    """A client that calls a function before each reply, and may load another folder than the adapter's."""

    before: Callable[[], None] = field(default=lambda: None, compare=False)
    path_of: Callable[[str], str] = field(default=str, compare=False)

    def sample(self, *args: Any, **kwargs: Any) -> Reply:
        self.before()
        return super().sample(*args, **kwargs)

    def load(self, name: str, path: str) -> None:
        super().load(name, self.path_of(path))


@dataclass
class Fault:
    """Happens once, in another thread, at one of the requests for a reply after `arm`."""

    happen: Callable[[], object]
    left: int = 0
    thread: Thread = field(default_factory=Thread)
    lock: Lock = field(default_factory=Lock)

    def arm(self, requests: int = 10) -> None:
        self.left = requests

    def before(self) -> None:
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.thread = Thread(target=self.happen, daemon=True)
                self.thread.start()

    @property
    def happened(self) -> bool:
        return self.left <= 0 and self.thread.ident is not None


CONFIG = TrainConfig(groups=2, group_size=4, selected_per_group=4, learning_rate=1e-3, max_new_tokens=32, temperature=1.25)


@contextmanager
def acting_on(folder: Path, *servers: VllmServer, config: TrainConfig = CONFIG) -> Iterator[Trainer]:
    """A trainer whose episodes these servers play; the folder holds the versions of its adapter."""
    trainer = Trainer(config, Accelerator(cpu=True), lambda agent: VllmActor(agent, servers, folder))
    try:
        yield trainer
    finally:
        trainer.actor.close()


def publish_and_move(trainer: Trainer) -> None:
    """Gives the servers the current weights as a version; then moves them, as an update does if returns differ."""
    actor = cast(VllmActor, trainer.actor)
    actor._publish(trainer.starts.games)
    generator = torch.Generator().manual_seed(actor._versions)
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            if "lora_B" in name:
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def version_name(trainer: Trainer) -> str:
    return next(str(member.ready.name) for member in cast(Any, trainer.actor)._pool.members if member.ready)
